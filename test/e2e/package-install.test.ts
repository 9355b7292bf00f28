import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { blocks, page, ROOT } from '../docs/pages';
import { createTestFolder } from '../postgres/database';

const run = promisify(execFile);

/** Needs no n8n; it stands here because it takes a while. */
test('the npm install of the operations page brings nodes that load, and no n8n-workflow of their own (cases 133, 137)', async () => {
	const folder = createTestFolder('install');
	const [nodes, host] = ['nodes', 'host/node_modules'].map((name) => path.join(folder, name));
	for (const each of [nodes, host]) mkdirSync(each, { recursive: true });
	const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', folder], {
		cwd: ROOT,
		maxBuffer: 64 * 1024 * 1024,
	});
	const [{ filename }] = JSON.parse(stdout) as [{ filename: string }];

	const [image] = blocks(page('docs/operations.md')).filter(
		({ language }) => language === 'dockerfile',
	);
	const command = (/npm install .+/.exec(image.text) ?? [''])[0];
	// the tarball stands in for the registry, which has no such version yet
	const ours = command.replace(/n8n-nodes-idempotency@\S+/, path.join(folder, filename));
	expect(ours).not.toBe(command);
	await run('sh', ['-e', '-c', `${ours} --prefer-offline`], { cwd: nodes });

	const installed = path.join(nodes, 'node_modules', 'n8n-nodes-idempotency');
	expect(existsSync(path.join(nodes, 'node_modules', 'n8n-workflow'))).toBe(false);
	const { n8n } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8')) as {
		n8n: { nodes: string[]; credentials: string[] };
	};
	symlinkSync(path.join(ROOT, 'node_modules', 'n8n-workflow'), path.join(host, 'n8n-workflow'));
	const files = [...n8n.nodes, ...n8n.credentials].map((file) => path.join(installed, file));
	expect(files.length).toBeGreaterThan(5);
	// the host's n8n-workflow is found as n8n lends it
	await run(process.execPath, ['-e', 'process.argv.slice(1).forEach(require)', ...files], {
		cwd: folder,
		env: { PATH: process.env.PATH, NODE_PATH: host },
	});
}, 180_000);
