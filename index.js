'use strict';

/** The ledger client and the identity functions, for endpoints and Code nodes that share the ledger. */
module.exports = require('./dist/ledger');
