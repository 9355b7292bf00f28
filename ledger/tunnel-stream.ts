import { Duplex } from 'stream';

/** Opens one channel to the server, for example through an SSH tunnel. */
export type OpenChannel = (host: string, port: number) => Promise<Duplex>;

/** The tunnel could not be opened; `cause` is what its maker threw. Checked by `name`. */
export class TunnelError extends Error {
	override readonly name = 'TunnelError';

	constructor(override readonly cause: unknown) {
		super('The tunnel could not be opened.');
	}
}

/**
 * A stream that looks to the driver like a socket it connects itself. A tunnel that died is not remembered: every new
 * connection opens a channel of its own, so the next call after an idle time-out just works (case 37).
 */
export class TunnelStream extends Duplex {
	private channel: Duplex | null = null;

	constructor(private readonly openChannel: OpenChannel) {
		super({ allowHalfOpen: false });
	}

	/** Called by the driver in place of `net.Socket.connect`; emits `connect` or `error`. */
	connect(port: number, host: string): this {
		this.openChannel(host, port)
			.then((channel) => {
				if (this.destroyed) {
					channel.destroy();
					return;
				}
				this.channel = channel;
				channel.on('data', (chunk: Buffer) => {
					if (!this.push(chunk)) channel.pause();
				});
				channel.on('end', () => this.push(null));
				channel.on('error', (error) => this.destroy(error));
				channel.on('close', () => this.destroy());
				this.emit('connect');
			})
			.catch((error: unknown) => this.destroy(new TunnelError(error)));
		return this;
	}

	override _read(): void {
		this.channel?.resume();
	}

	override _write(
		chunk: Buffer,
		encoding: BufferEncoding,
		callback: (error?: Error | null) => void,
	): void {
		if (this.channel === null) {
			callback(new Error('The tunnel is not open.'));
			return;
		}
		if (this.channel.write(chunk, encoding)) callback();
		else this.channel.once('drain', () => callback());
	}

	/** The parts of one statement leave as one packet: sent apart, each would wait for the answer to the one before it. */
	override _writev(
		chunks: Array<{ chunk: Buffer }>,
		callback: (error?: Error | null) => void,
	): void {
		this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'utf8', callback);
	}

	override _final(callback: (error?: Error | null) => void): void {
		this.channel?.end();
		callback();
	}

	override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
		this.channel?.destroy();
		// a socket closes a turn later, and the driver relies on it: TLS first says why it ended the stream
		setImmediate(callback, error);
	}

	// what the driver calls on a socket and a channel does not have
	setNoDelay(): this {
		return this;
	}

	setKeepAlive(): this {
		return this;
	}

	ref(): this {
		return this;
	}

	unref(): this {
		return this;
	}
}
