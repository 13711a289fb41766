// guest.js - the guest as the page sees it: get it, ask it, end it
//
// A Guest is one life of the emulated machine. `begin` starts one from the saved state;
// it is downloaded once and kept. `end` ends it at any moment, whatever it does.

let pieces;

// Reads `url`, and reports how far it is. A server or a network that breaks off in the
// middle is an error here.
async function download(url, size, progress, signal) {
	const answer = await fetch(url, { signal });

	if (!answer.ok)
		throw new Error(`the server answered ${answer.status} for ${url}`);
	const bytes = new Uint8Array(size), reader = answer.body.getReader();
	let count = 0;

	for (;;) {
		const { done, value } = await reader.read().catch(error => {
			throw new Error(`the download of ${url} broke off: ${error.message}`);
		});

		if (done)
			break;
		if (count + value.length > size)
			throw new Error(`${url} is another version than this page; load the page again`);
		bytes.set(value, count);
		count += value.length;
		progress(count);
	}
	if (count !== size)
		throw new Error(`the download of ${url} broke off, or it is another version ` +
			'than this page: load the page again');
	return bytes;
}

// The compiled emulator and the state, downloaded once. If one of the two fails, the other
// one ends as well, and the next call tries again.
function fetched(files, progress) {
	if (pieces)
		return pieces;
	const got = {}, total = files.wasm.size + files.state.size, rest = new AbortController();
	const one = name => download(files[name].url, files[name].size, count => {
		got[name] = count;
		progress(Object.values(got).reduce((sum, n) => sum + n, 0), total);
	}, rest.signal);

	pieces = Promise.all([one('wasm').then(bytes => WebAssembly.compile(bytes)), one('state')]);
	pieces.catch(() => {
		pieces = undefined;
		rest.abort();
	});
	return pieces;
}

const bytes = new TextEncoder();

export class Guest {
	#worker;
	#text = new TextDecoder();
	#lines = '';
	#ended = '';
	#not_running = () => {};
	#waiting = new Set();
	// What its files are where they differ from the originals.
	files = new Map();
	// Does a command run in its shell?
	is_busy = false;
	// Has a check changed it, so that the next command needs another guest?
	is_spent = false;

	// `output(bytes)`: what the terminal shows. `said(line)`: what the guest says to the
	// page. `sent(frame)`: what leaves its network adapter. `failed(why)`: the emulator
	// has stopped.
	constructor({ output, said, sent, failed }) {
		this.output = output;
		this.said = said;
		this.sent = sent;
		this.failed = failed;
	}

	async begin(files, progress) {
		if (typeof WebAssembly !== 'object' || typeof Worker !== 'function')
			throw new Error('this browser has no WebAssembly');
		const [wasm, state] = await fetched(files, progress);

		if (this.#ended)
			throw new Error(this.#ended);
		const running = new Promise((resolve, reject) => {
			this.#not_running = reject;
			this.#worker = new Worker(files.worker, { type: 'module' });
			this.#worker.onerror = event => {
				reject(new Error(event.message || 'the emulator did not start'));
				this.failed(event.message || 'the emulator did not start');
			};
			this.#worker.onmessage = ({ data }) => {
				if (data.error) {
					reject(new Error(data.error));
					this.failed(data.error);
				} else if (data.running) {
					resolve();
				} else {
					this.#receive(data);
				}
			};
		});
		const copy = state.slice().buffer;

		this.#worker.postMessage({ wasm, state: copy }, [copy]);
		await running;
		const random = crypto.getRandomValues(new Uint32Array(8)).join('-');

		await this.ask(`date ${Math.floor(Date.now() / 1000)}`);
		await this.ask(`random ${random}`);
	}

	end(why = 'the guest was ended') {
		this.#ended = why;
		this.#not_running(new Error(why));
		this.#worker?.terminate();
		this.#worker = undefined;
		for (const waiter of this.#waiting)
			waiter.give_up(why);
	}

	#receive({ port, bytes, written, frame }) {
		if (frame) {
			this.sent(frame);
		} else if (written) {
			this.#tell(`wrote ${written}`);
		} else if (port === 0) {
			this.output(bytes);
		} else {
			const lines = (this.#lines + this.#text.decode(bytes, { stream: true })).split('\n');

			this.#lines = lines.pop();
			for (const line of lines)
				this.#tell(line);
		}
	}

	#tell(line) {
		if (line === 'busy')
			this.is_busy = true;
		else if (line.startsWith('prompt '))
			this.is_busy = false;
		else if (line === 'spent')
			this.is_spent = true;
		this.said(line);
		for (const waiter of this.#waiting) {
			if (waiter.pattern.test(line))
				waiter.got(line);
		}
	}

	// Resolves with the next line that the guest says and `pattern` fits.
	line(pattern, seconds) {
		return new Promise((resolve, reject) => {
			const waiter = { pattern };
			const over = (then, value) => {
				clearTimeout(late);
				this.#waiting.delete(waiter);
				then(value);
			};
			const late = setTimeout(() =>
				over(reject, new Error('the guest does not answer')), seconds * 1000);

			waiter.got = line => over(resolve, line);
			waiter.give_up = why => over(reject, new Error(why));
			this.#waiting.add(waiter);
		});
	}

	send(port, data) {
		this.#worker?.postMessage({ port, bytes: data });
	}

	type(keys) {
		this.send(0, bytes.encode(keys));
	}

	// A frame arrives at its network adapter.
	receive(frame) {
		this.#worker?.postMessage({ frame });
	}

	// Whatever runs in it ends. An error if it does not manage that.
	async stop() {
		const prompt = this.line(/^prompt/, 4);

		prompt.catch(() => {});
		this.type('\x03');
		await this.ask('stop', 4);
		await prompt;
	}

	// Says `request` to the guest, and waits until it is done.
	async ask(request, seconds = 10) {
		const done = this.line(new RegExp(`^did ${request.split(' ')[0]}$`), seconds);

		this.send(1, bytes.encode(`${request}\n`));
		await done;
	}

	// Makes `content` the file /workbook/PATH.
	async put(path, content) {
		const done = this.line(/^wrote in$/, 10);

		this.#worker.postMessage({ file: 'in', bytes: bytes.encode(content) });
		await done;
		await this.ask(`put ${path}`);
	}
}
