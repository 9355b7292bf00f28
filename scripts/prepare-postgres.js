'use strict';

/** Makes the embedded PostgreSQL ready to run, or says why this platform has none. */

const { nativeFolder } = require('./embedded-postgres');

nativeFolder(18).then(
	() => console.log('   ready'),
	(error) => {
		console.error(error.message);
		process.exit(1);
	},
);
