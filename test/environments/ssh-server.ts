import { createRequire } from 'node:module';
import net from 'node:net';
import type { Duplex } from 'node:stream';

/** What is used of ssh2, n8n's own copy: it ships no types, and the package itself does not need it. */
interface Authentication {
	method: string;
	username: string;
	password?: string;
	key?: { algo: string; data: Buffer };
	blob?: Buffer;
	signature?: Buffer;
	hashAlgo?: string;
	accept(): void;
	reject(methods?: string[]): void;
}
interface PublicKey {
	getPublicSSH(): Buffer;
	verify(data: Buffer, signature: Buffer, hashAlgorithm?: string): boolean | Error;
}
interface ServerSession {
	on(event: 'authentication', listener: (attempt: Authentication) => void): this;
	on(event: 'error', listener: (error: Error) => void): this;
	on(
		event: 'tcpip',
		listener: (accept: () => Duplex, reject: () => void, to: Destination) => void,
	): this;
}
interface Destination {
	destIP: string;
	destPort: number;
}
interface KeyPair {
	private: string;
	public: string;
}
interface Ssh2 {
	Server: new (
		config: { hostKeys: string[] },
		onConnection: (session: ServerSession) => void,
	) => { injectSocket(socket: net.Socket): void };
	utils: {
		generateKeyPairSync(
			type: string,
			options: { bits: number; passphrase?: string; cipher?: string; rounds?: number },
		): KeyPair;
		parseKey(key: string): PublicKey | Error;
	};
}
const ssh2 = createRequire(require.resolve('n8n-core'))('ssh2') as Ssh2;

/** A pair in OpenSSH's format, the private key under a passphrase where one is given. */
export function createKeyPair(passphrase?: string): KeyPair {
	const protection =
		passphrase === undefined ? {} : { passphrase, cipher: 'aes256-ctr', rounds: 4 };
	// not ed25519: one in a few hundred of ssh2's own cannot be read again
	return ssh2.utils.generateKeyPairSync('ecdsa', { bits: 256, ...protection });
}

export interface SshAccount {
	user: string;
	password: string;
	/** OpenSSH public keys that may log in. */
	keys: string[];
}

/** An SSH host that forwards to any address, and that fails in the ways such hosts do. */
export class SshServer {
	/** Sessions and forwarded channels opened so far. */
	sessions = 0;
	channels = 0;
	/** Forwarded connections are refused, as an administrator may order it. */
	refusesForwarding = false;

	private readonly sockets = new Set<net.Socket>();
	private listener: net.Server | null = null;
	private readonly host: InstanceType<Ssh2['Server']>;
	private armed: string | null = null;

	constructor(private readonly account: SshAccount) {
		const hostKeys = [createKeyPair().private];
		this.host = new ssh2.Server({ hostKeys }, (session) => this.serve(session));
	}

	get port(): number {
		return (this.listener?.address() as net.AddressInfo).port;
	}

	/** Listens on this port; on a free one without it. */
	async listen(port = 0): Promise<void> {
		const listener = net.createServer((socket) => {
			this.sockets.add(socket);
			socket.on('error', () => {});
			socket.setNoDelay(true);
			socket.once('close', () => this.sockets.delete(socket));
			this.host.injectSocket(socket);
		});
		await new Promise<void>((resolve, reject) => {
			listener.once('error', reject).listen(port, '127.0.0.1', resolve);
		});
		this.listener = listener;
	}

	/** Ends every session without a word, as a reboot or a firewall's reset does. */
	cut(): void {
		for (const socket of this.sockets) socket.destroy();
	}

	/** Takes nothing any more and says nothing, as a router that has forgotten the connection. */
	freeze(): void {
		for (const socket of this.sockets) socket.pause();
	}

	/** Ends all sessions in place of the answer to the next statement that holds this text. */
	loseAnswerTo(text: string): void {
		this.armed = text;
	}

	async stop(): Promise<void> {
		const { listener } = this;
		this.listener = null;
		const closed = new Promise((resolve) => listener?.close(resolve));
		this.cut();
		await closed;
	}

	private serve(session: ServerSession): void {
		this.sessions += 1;
		session.on('error', () => {});
		session.on('authentication', (attempt) => {
			if (this.mayEnter(attempt)) attempt.accept();
			else attempt.reject(['password', 'publickey']);
		});
		session.on('tcpip', (accept, reject, to) => {
			if (this.refusesForwarding) {
				reject();
				return;
			}
			const upstream = net.connect(to.destPort, to.destIP);
			upstream.once('error', reject);
			upstream.once('connect', () => {
				upstream.off('error', reject);
				this.channels += 1;
				this.forward(accept(), upstream);
			});
		});
	}

	private forward(channel: Duplex, upstream: net.Socket): void {
		channel.on('error', () => {});
		upstream.on('error', () => {});
		let losing = false;
		channel.on('data', (data: Buffer) => {
			if (this.armed !== null && data.includes(this.armed)) {
				this.armed = null;
				losing = true;
			}
			upstream.write(data);
		});
		upstream.on('data', (data) => {
			// outside a transaction the server answers after its commit
			if (losing) this.cut();
			else channel.write(data);
		});
		channel.on('close', () => upstream.destroy());
		upstream.on('close', () => channel.end());
	}

	private mayEnter(attempt: Authentication): boolean {
		const { user, password, keys } = this.account;
		if (attempt.username !== user) return false;
		if (attempt.method === 'password') return attempt.password === password;
		if (attempt.method !== 'publickey') return false;
		return keys.some((text) => {
			const key = ssh2.utils.parseKey(text);
			if (key instanceof Error || !key.getPublicSSH().equals(attempt.key?.data ?? Buffer.of()))
				return false;
			// without a signature it only asks whether the key would do
			if (attempt.signature === undefined || attempt.blob === undefined) return true;
			return key.verify(attempt.blob, attempt.signature, attempt.hashAlgo) === true;
		});
	}
}
