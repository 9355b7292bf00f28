import type { ICredentialType, INodeProperties } from 'n8n-workflow';

/** One shared ledger: every node of the package uses this credential. Tested by the nodes (`testLedger`). */
export class IdempotencyLedgerApi implements ICredentialType {
	name = 'idempotencyLedgerApi';

	/** The editor leaves "API" out where it shows the name; n8n's rules ask for it here. */
	displayName = 'Idempotency Ledger (Postgres) API';

	icon = {
		light: 'file:idempotency-ledger.svg',
		dark: 'file:idempotency-ledger.dark.svg',
	} as const;

	documentationUrl = 'https://github.com/n8n-nodes-idempotency/n8n-nodes-idempotency#credential';

	properties: INodeProperties[] = [
		{
			displayName:
				'Everybody who may use this credential can read the stored results. Give each tenant a schema of its own.',
			name: 'notice',
			type: 'notice',
			default: '',
		},
		{
			displayName: 'Host',
			name: 'host',
			type: 'string',
			default: 'localhost',
			required: true,
			description: 'Name or address of the PostgreSQL server (version 14 or newer)',
		},
		{
			displayName: 'Port',
			name: 'port',
			type: 'number',
			default: 5432,
			required: true,
		},
		{
			displayName: 'Database',
			name: 'database',
			type: 'string',
			default: '',
			required: true,
			description:
				"The ledger can live in a database of its own or in one you have, also in n8n's: it keeps to its schema",
		},
		{
			displayName: 'User',
			name: 'user',
			type: 'string',
			default: '',
			required: true,
		},
		{
			displayName: 'Password',
			name: 'password',
			type: 'string',
			typeOptions: { password: true },
			default: '',
		},
		{
			displayName: 'Schema',
			name: 'schema',
			type: 'string',
			default: 'idempotency',
			description:
				'Where the tables and functions of the ledger live. Flows with the same schema share works, others never meet.',
		},
		{
			displayName: 'TLS',
			name: 'tls',
			type: 'options',
			options: [
				{
					name: 'Off',
					value: 'off',
					description: 'Not encrypted. For a server on the same machine or in a private network.',
				},
				{
					name: 'Require',
					value: 'require',
					description:
						'Encrypted, without checking who answers. Works with self-signed certificates, such as those of poolers.',
				},
				{
					name: 'Verify',
					value: 'verify',
					description: "Encrypted, and the server's certificate is checked. The safest choice.",
				},
			],
			default: 'off',
		},
		{
			displayName: 'Certificate of the Authority',
			name: 'ca',
			type: 'string',
			typeOptions: { rows: 4 },
			default: '',
			placeholder: '-----BEGIN CERTIFICATE-----',
			description:
				'PEM text of the authority that signed the certificate of the server. Leave empty for a publicly trusted one.',
			displayOptions: { show: { tls: ['verify'] } },
		},
		{
			displayName: 'Client Certificate',
			name: 'clientCert',
			type: 'string',
			typeOptions: { rows: 4, password: true },
			default: '',
			placeholder: '-----BEGIN CERTIFICATE-----',
			description: 'PEM text, only where the server asks for one. Needs its key.',
			displayOptions: { show: { tls: ['require', 'verify'] } },
		},
		{
			displayName: 'Client Key',
			name: 'clientPrivateKey',
			type: 'string',
			typeOptions: { rows: 4, password: true },
			default: '',
			description:
				'PEM text of the key that belongs to the client certificate, without a passphrase',
			displayOptions: { show: { tls: ['require', 'verify'] } },
		},
		{
			displayName: 'SSH Tunnel',
			name: 'sshTunnel',
			type: 'boolean',
			default: false,
			description:
				'Whether to reach the server through an SSH host. Host and port above are as that host sees them.',
		},
		{
			displayName: 'SSH Authenticate With',
			name: 'sshAuthenticateWith',
			type: 'options',
			options: [
				{ name: 'Password', value: 'password' },
				{ name: 'Private Key', value: 'privateKey' },
			],
			default: 'password',
			displayOptions: { show: { sshTunnel: [true] } },
		},
		{
			displayName: 'SSH Host',
			name: 'sshHost',
			type: 'string',
			default: 'localhost',
			displayOptions: { show: { sshTunnel: [true] } },
		},
		{
			displayName: 'SSH Port',
			name: 'sshPort',
			type: 'number',
			default: 22,
			displayOptions: { show: { sshTunnel: [true] } },
		},
		{
			displayName: 'SSH User',
			name: 'sshUser',
			type: 'string',
			default: '',
			displayOptions: { show: { sshTunnel: [true] } },
		},
		{
			displayName: 'SSH Password',
			name: 'sshPassword',
			type: 'string',
			typeOptions: { password: true },
			default: '',
			displayOptions: { show: { sshTunnel: [true], sshAuthenticateWith: ['password'] } },
		},
		{
			displayName: 'SSH Private Key',
			name: 'privateKey',
			type: 'string',
			typeOptions: { rows: 4, password: true },
			default: '',
			displayOptions: { show: { sshTunnel: [true], sshAuthenticateWith: ['privateKey'] } },
		},
		{
			displayName: 'SSH Passphrase',
			name: 'passphrase',
			type: 'string',
			typeOptions: { password: true },
			default: '',
			description: 'The passphrase of the private key, if it has one',
			displayOptions: { show: { sshTunnel: [true], sshAuthenticateWith: ['privateKey'] } },
		},
		{
			displayName: 'Install and Upgrade Schema Automatically',
			name: 'automaticMigration',
			type: 'boolean',
			default: true,
			description:
				'Whether the tables and functions are created and upgraded at first use. Switch off when a database administrator does it.',
		},
		{
			displayName: 'Maximum Connections',
			name: 'maxConnections',
			type: 'number',
			typeOptions: { minValue: 1, maxValue: 200 },
			default: 10,
			description:
				'Connections this n8n process opens at most for this credential. Idle ones are closed after 30 seconds.',
		},
		{
			displayName: 'Connect Time-Out (Seconds)',
			name: 'connectTimeoutSeconds',
			type: 'number',
			typeOptions: { minValue: 1, maxValue: 600 },
			default: 10,
			description: 'How long to wait for a connection before the node fails',
		},
		{
			displayName: 'Query Time-Out (Seconds)',
			name: 'queryTimeoutSeconds',
			type: 'number',
			typeOptions: { minValue: 1, maxValue: 600 },
			default: 30,
			description: 'How long to wait for an answer before the node fails',
		},
	];
}
