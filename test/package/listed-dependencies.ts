import { page, tables } from '../docs/pages';

export interface ListedDependency {
	name: string;
	version: string;
	licence: string;
	/** As printed, such as "123 kB". */
	size: string;
}

/** The run-time dependencies as docs/security.md lists them, direct ones and what those bring along. */
export function listedDependencies(): ListedDependency[] {
	return tables(page('docs/security.md'))
		.filter(({ headings }) => headings[0] === 'package')
		.flatMap(({ rows }) => rows)
		.map(([name, version, licence, size]) => ({
			name: name.replace(/`/g, ''),
			version,
			licence,
			size,
		}));
}
