// worker.js - the emulator, in a thread of its own: whatever the guest does, the page
// goes on, and can end this thread.
//
// From the page: { wasm, state } starts the guest; { port, bytes } goes into one of its
// two serial ports; { file, bytes } writes a file that the guest sees as /mnt/FILE;
// { frame } arrives at its network adapter.
// To the page: { running }, { port, bytes }, { written: file }, { frame }, { error }.
import { V86 } from './libv86.mjs';
import { machine } from './machine.js';

let emulator;
const waiting = [[], []];
let soon = 0;

// A program that prints a megabyte must not send a million messages.
function flush() {
	soon = 0;
	for (const port of [0, 1]) {
		if (waiting[port].length) {
			const bytes = Uint8Array.from(waiting[port]);

			waiting[port] = [];
			postMessage({ port, bytes }, [bytes.buffer]);
		}
	}
}

function start(wasm, state) {
	emulator = new V86({
		...machine,
		wasm_fn: async imports => (await WebAssembly.instantiate(wasm, imports)).exports,
		initial_state: { buffer: state },
	});
	for (const port of [0, 1]) {
		emulator.add_listener(`serial${port}-output-byte`, byte => {
			waiting[port].push(byte);
			soon ||= setTimeout(flush, 8);
		});
	}
	emulator.add_listener('net0-send', frame => postMessage({ frame }));
	emulator.add_listener('emulator-started', () => postMessage({ running: true }));
}

onmessage = async ({ data }) => {
	try {
		if (data.state) {
			start(data.wasm, data.state);
		} else if (data.file) {
			await emulator.create_file(data.file, data.bytes);
			postMessage({ written: data.file });
		} else if (data.frame) {
			emulator.bus.send('net0-receive', data.frame);
		} else {
			emulator.serial_send_bytes(data.port, data.bytes);
		}
	} catch (error) {
		postMessage({ error: String(error) });
	}
};
// Errors of the emulator itself, later on, in the middle of its loop.
onunhandledrejection = event => postMessage({ error: String(event.reason) });
