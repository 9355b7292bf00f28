'use strict';

const { default: Sequencer } = require('@jest/test-sequencer');

/** The editor first: it installs the package through the panel, the others install it where it is missing. */
module.exports = class extends Sequencer {
	/** @override @param {import('@jest/test-result').Test[]} tests */
	sort(tests) {
		return [...tests].sort((one, other) => one.path.localeCompare(other.path));
	}
};
