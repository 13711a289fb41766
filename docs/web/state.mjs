// state.mjs - boots the guest once, and saves it as it waits for the first command
//
// Usage: node state.mjs MODULES KERNEL ROOT PROJECT.tar OUT
//
// MODULES is the folder node_modules with v86; KERNEL and ROOT are what guest/pieces has
// made. The files of PROJECT.tar go to /workbook of the guest, and what every program is
// linked with is compiled there. OUT is v86's state, not compressed.
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { machine } from './machine.js';

const [modules, kernel, root, project, out] = process.argv.slice(2);
const { V86 } = await import(pathToFileURL(`${modules}/v86/build/libv86.mjs`));
const file = path => {
	const bytes = readFileSync(path);

	return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
};
const emulator = new V86({
	...machine,
	wasm_path: `${modules}/v86/build/v86.wasm`,
	bios: { buffer: file(`${root}/bios/bios.bin`) },
	vga_bios: { buffer: file(`${root}/bios/vgabios-stdvga.bin`) },
	bzimage: { buffer: file(`${kernel}/bzimage`) },
	initrd: { buffer: file(`${root}/root.cpio.gz`) },
	cmdline: 'console=ttyS0 rdinit=/init quiet tsc=reliable random.trust_cpu=on',
});

// What the guest has printed; the lines of its second port that nobody waited for yet.
let terminal = '', said = [], half = '', wake = () => {};

emulator.add_listener('serial0-output-byte', byte => {
	terminal += String.fromCharCode(byte);
	if (process.env.V)
		process.stderr.write(String.fromCharCode(byte));
});
emulator.add_listener('serial1-output-byte', byte => {
	if (byte !== 10) {
		half += String.fromCharCode(byte);
		return;
	}
	if (process.env.V)
		process.stderr.write(`[${half}]\n`);
	said.push(half);
	half = '';
	wake();
});

async function line(pattern, seconds = 300) {
	const late = setTimeout(() => {
		process.stderr.write(`${terminal}\nstate: no "${pattern.source}" after ${seconds} s\n`);
		process.exit(1);
	}, seconds * 1000);

	for (;;) {
		while (said.length) {
			const next = said.shift();

			if (pattern.test(next)) {
				clearTimeout(late);
				return next;
			}
		}
		await new Promise(resolve => { wake = resolve; });
	}
}

async function ask(request) {
	emulator.serial_send_bytes(1, new TextEncoder().encode(`${request}\n`));
	await line(new RegExp(`^did ${request.split(' ')[0]}`));
}

// Runs a command in the shell, which must succeed.
async function shell(command) {
	terminal = '';
	emulator.serial0_send(`${command}\n`);
	const status = await line(/^prompt/);

	if (status !== 'prompt 0') {
		process.stderr.write(`${terminal}\nstate: ${command}: ${status}\n`);
		process.exit(1);
	}
}

await line(/^prompt/);
await emulator.create_file('in', new Uint8Array(file(project)));
await ask('put project.tar');
await shell('tar -xf project.tar && rm project.tar && cat /sys/class/infiniband/*/ports/1/state');
if (!/ACTIVE/.test(terminal)) {
	process.stderr.write(`${terminal}\nstate: the device is not ACTIVE\n`);
	process.exit(1);
}
await shell('make common && make programs');
// Once, so that what a program needs first is there: and it must work.
await shell('make run-00');
process.stdout.write(terminal.replaceAll('\r', ''));
// What was used and is free again should be zeros, which cost nothing in the state.
await shell('rm -rf /tmp/*; echo 3 >/proc/sys/vm/drop_caches; ' +
	'dd if=/dev/zero of=/tmp/0 bs=64k count=$((($(awk \'/^MemFree/ { print $2 }\' ' +
	'/proc/meminfo) - 6000) / 64)) 2>/dev/null; rm /tmp/0; echo 3 >/proc/sys/vm/drop_caches');
await emulator.create_file('in', new Uint8Array(0));
await shell('history -c; clear');
await ask('keep');
await new Promise(resolve => setTimeout(resolve, 300));
writeFileSync(out, new Uint8Array(await emulator.save_state()));
process.exit(0);
