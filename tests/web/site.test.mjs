// site.test.mjs - the site in headless Chromium, used as a reader would use it
//
// Usage: node --test site.test.mjs, with SITE (the folder build/web), MODULES (node_modules
// with puppeteer-core) and CHROMIUM. SHOTS=FOLDER keeps screenshots. CHECKS="01 02" are the
// chapters of which the solution is checked; without it, all. Everything is served from localhost; whatever the page
// asks elsewhere for is an error.
import { after, afterEach, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { serve } from '../../docs/web/serve.mjs';

const { SITE, MODULES, CHROMIUM, SHOTS } = process.env;
const puppeteer = createRequire(`${MODULES}/`)('puppeteer-core');
const project = fileURLToPath(new URL('../../', import.meta.url));
// Generous: whether something works is asked here, and not how fast this machine is.
const patience = 240_000;
let server, browser, address;
// The paths of which the server sends the first half.
let breaks_off = () => false;

before(async () => {
	server = await serve(SITE, 0);
	server.prependListener('request', ({ url }, answer) => {
		if (breaks_off(url.replace(/\?.*/, ''))) {
			answer.end = bytes => answer.write(bytes.subarray(0, bytes.length / 2), () =>
				setTimeout(() => answer.destroy(), 300));
		}
	});
	address = `http://127.0.0.1:${server.address().port}/`;
	browser = await puppeteer.launch({ executablePath: CHROMIUM, protocolTimeout: patience,
		args: ['--no-sandbox', '--disable-gpu'] });
	if (SHOTS)
		mkdirSync(SHOTS, { recursive: true });
});
// Each reader's guest ends with the reader.
const contexts = [];

afterEach(async () => {
	while (contexts.length)
		await contexts.pop().close();
});
after(async () => {
	await browser?.close();
	server?.close();
});

// A page of a reader who was never here before; `prepare` may change the browser first.
async function reader({ width = 1280, height = 900, dark = false, prepare } = {}) {
	const context = await browser.createBrowserContext();
	const page = await context.newPage();

	contexts.push(context);
	page.setDefaultTimeout(patience);
	page.elsewhere = [];
	page.errors = [];
	page.bytes = 0;
	await page.setViewport({ width, height });
	await page.emulateMediaFeatures([{ name: 'prefers-color-scheme',
		value: dark ? 'dark' : 'light' }]);
	page.on('request', request => {
		if (!/^(data:|blob:)/.test(request.url()) && !request.url().startsWith(address))
			page.elsewhere.push(request.url());
	});
	page.on('response', async response => {
		page.bytes += +(response.headers()['content-length'] ?? 0);
	});
	page.on('pageerror', error => page.errors.push(String(error)));
	page.on('dialog', dialog => dialog.accept());
	await prepare?.(page);
	await page.goto(address);
	page.done = () => {
		assert.deepEqual(page.elsewhere, [], 'nothing is asked of other servers');
		assert.deepEqual(page.errors, [], 'no error that nobody caught');
	};
	return page;
}

const shot = (page, name) => SHOTS && page.screenshot({ path: `${SHOTS}/${name}.png` });
const state = page => page.evaluate(() => document.documentElement.dataset.guest);
const wait_for = (page, what, ...rest) => page.waitForFunction(what,
	{ timeout: patience, polling: 50 }, ...rest);

// What the terminal shows, the lines that have scrolled off as well.
const shown = (page, which = 'terminal') => page.evaluate(which => {
	const buffer = window.workbook[which].buffer.active, lines = [];

	for (let i = 0; i < buffer.length; i++) {
		const line = buffer.getLine(i), words = line.translateToString(true);

		if (line.isWrapped)
			lines[lines.length - 1] += words;
		else
			lines.push(words);
	}
	return lines.join('\n').trimEnd();
}, which);

// Presses a button and waits until the command is over. Gives its exit status and output.
async function press(page, label) {
	await page.evaluate(() => {
		delete document.documentElement.dataset.exit;
		window.workbook.terminal.clear();
	});
	await page.evaluate(label => {
		const button = document.querySelector(`button[aria-label=${JSON.stringify(label)}]`);

		if (!button)
			throw new Error(`no button ${label}`);
		button.click();
	}, label);
	return over(page);
}

async function over(page) {
	await wait_for(page, () => document.documentElement.dataset.exit !== undefined ||
		document.documentElement.dataset.guest === 'failed');
	return { exit: await page.evaluate(() => document.documentElement.dataset.exit),
		output: await shown(page), state: await state(page) };
}

async function press_run(page) {
	await page.evaluate(() => {
		delete document.documentElement.dataset.exit;
		window.workbook.terminal.clear();
		document.getElementById('run').click();
	});
	return over(page);
}

// Types a command into the guest's shell, as a button beside a command of the text does.
async function command(page, words) {
	await page.evaluate(words => window.workbook.run(words), words);
	return over(page);
}

// Replaces `from` with `to` in the editor's file.
const edit = (page, from, to) => page.evaluate((from, to) => {
	const { editor } = window.workbook, at = editor.state.doc.toString().indexOf(from);

	if (at < 0)
		throw new Error(`not there: ${from}`);
	editor.dispatch({ changes: { from: at, to: at + from.length, insert: to } });
}, from, to);

const programs = readdirSync(project).filter(name => /^\d\d-/.test(name)).flatMap(folder =>
	readdirSync(project + folder).filter(name => name.endsWith('.c'))
		.map(name => `${folder}/${name}`));

test('the text is there, with Run and Edit for every program, before any guest', async () => {
	const page = await reader();

	for (const path of programs) {
		const count = await page.$$eval(`button[aria-label="Run ${path}"]`, all => all.length);

		assert.equal(count, 2, `Run ${path}: below the chapter's heading and at the source`);
	}
	assert.equal(await page.$eval('#bench', bench => bench.hidden), true);
	assert.equal(await state(page), 'none');
	assert.ok(page.bytes < 4e6, `${page.bytes} bytes`);
	assert.equal(await page.evaluate(path => window.workbook.originals.get(path), '05-pingpong/pingpong.c'),
		readFileSync(`${project}05-pingpong/pingpong.c`, 'utf8'), 'a file is what the project has');
	await shot(page, 'text-1280-light');
	page.done();
});

test('hello runs with the first click; changed, broken, and mended', async () => {
	const page = await reader();
	let seen = await press(page, 'Run 00-hello/hello.c');

	assert.equal(seen.exit, '0', seen.output);
	assert.match(seen.output, /hello/i);
	console.log('first click:', await page.evaluate(() => window.times), 'bytes:', page.bytes);
	assert.ok(page.bytes < 15e6, `${page.bytes} bytes`);
	await shot(page, 'hello-1280-light');

	seen = await press_run(page);
	assert.equal(seen.exit, '0', seen.output);
	console.log('second click:', await page.evaluate(() => window.times));

	await edit(page, '= "hello"', '= "good evening"');
	seen = await press_run(page);
	assert.equal(seen.exit, '0', seen.output);
	assert.match(seen.output, /good evening/);

	await edit(page, 'good evening"', 'good evening"oops');
	seen = await press_run(page);
	assert.notEqual(seen.exit, '0');
	const problem = await page.$eval('#problems button', button => button.textContent);
	assert.match(problem, /^00-hello\/hello\.c, line \d+: /);
	await shot(page, 'broken-1280-light');

	await edit(page, '"oops', '"');
	await page.reload();
	assert.match(await page.evaluate(() => window.workbook.content('00-hello/hello.c')),
		/good evening/, 'what was written is kept');
	seen = await press(page, 'Run 00-hello/hello.c');
	assert.equal(seen.exit, '0', seen.output);
	assert.match(seen.output, /good evening/);
	await page.click('#reset');
	assert.equal(await page.evaluate(() => window.workbook.editor.state.doc.toString()),
		readFileSync(`${project}00-hello/hello.c`, 'utf8'));
	page.done();
});

test('every program of every chapter runs, as it is and changed', async () => {
	const page = await reader();

	for (const path of programs.filter(path => !/\/(exercise|broken)\.c$/.test(path))) {
		const same = await press(page, `Run ${path}`);

		assert.equal(same.exit, '0', `${path}: ${same.output}`);
		assert.equal(await page.evaluate(() => window.times.compiling), undefined,
			'a program that nobody has changed is compiled already');
		await edit(page, '/*', '/* mine: ');
		const { exit, output } = await press_run(page);
		const times = await page.evaluate(() => window.times);

		console.log(path, `compiled in ${times.starts - times.compiling} ms, output after ${times.output} ms`);
		assert.equal(exit, '0', `${path}: ${output}`);
		if (/^ \* Sides:/m.test(readFileSync(project + path, 'utf8')))
			assert.match(output, /^server \| [^]*^client \| /m, path);
	}
	page.done();
});

test('every exercise.c and broken.c compiles and meets its peer, and can be stopped', async () => {
	const page = await reader();

	for (const path of programs.filter(path => /\/(exercise|broken)\.c$/.test(path))) {
		await page.evaluate(path => {
			window.workbook.terminal.clear();
			document.querySelector(`button[aria-label="Run ${path}"]`).click();
		}, path);
		await wait_for(page, () => {
			const { active } = window.workbook.terminal.buffer;

			for (let i = 0; i < active.length; i++) {
				if (/^try +\| starts: /.test(active.getLine(i).translateToString()))
					return true;
			}
			return document.documentElement.dataset.exit !== undefined;
		});
		const output = await shown(page);

		assert.match(output, /^try +\| starts: /m, `${path}: ${output}`);
		await page.evaluate(() => document.getElementById('stop').click());
		await wait_for(page, () => document.documentElement.dataset.guest === 'ready');
	}
	page.done();
});

test('the commands of the text, and what shows the device', async () => {
	const page = await reader();

	// The checks have a test of their own.
	for (const command of await page.$$eval('.run-block, .run-here',
		all => [...new Set(all.map(button => button.getAttribute('aria-label')))]
			.filter(label => !label.startsWith('Run make check-')))) {
		const { exit, output } = await press(page, command);

		assert.match(exit ?? '', /^\d+$/, `${command}: ${output}`);
		assert.doesNotMatch(output, /not found|In the browser `make`/, command);
	}
	page.done();
});

// Writes the exercises of a chapter, as `solve` makes them, into the editor.
async function write_exercises(page, chapter, ...options) {
	const folder = mkdtempSync(`${tmpdir()}/web-`);

	try {
		execFileSync(`${project}tests/grading/solve`, [...options, folder, chapter]);
		for (const path of ['exercise', 'broken'].map(name => `${chapter}/${name}.c`)) {
			if (!existsSync(`${folder}/${path}`))
				continue;
			await page.evaluate((path, text) => {
				document.querySelector(`button[aria-label="Edit ${path}"]`).click();
				const { editor } = window.workbook;

				editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
			}, path, readFileSync(`${folder}/${path}`, 'utf8'));
		}
	} finally {
		rmSync(folder, { recursive: true });
	}
}

test('Check of a starter: no points', async () => {
	const page = await reader();
	const { exit, output } = await press(page, 'Check 04-qp-states/exercise.c');

	assert.equal(exit, '1', output);
	assert.match(output, /FAIL  04\.1 [^]*^  0\/20 +next: make hint-04 /m);
	assert.match(output, /These points do not count/);
	await shot(page, 'check-04-1280-light');
	page.done();
});

// Each chapter, because a check uses commands and calls of the kernel that no other one does.
for (const number of (process.env.CHECKS ?? '01 02 03 04 05 06 07').split(' ')) {
	const chapter = readdirSync(project).find(name => name.startsWith(`${number}-`));

	test(`Check of the solution of ${chapter}: all points`, async () => {
		const page = await reader();

		await write_exercises(page, chapter);
		const seen = await press(page, `Check ${chapter}/exercise.c`);

		assert.equal(seen.exit, '0', seen.output);
		assert.match(seen.output, /^  20\/20 +all checks pass/m);
		console.log(`${chapter}, the solution: checked in`, await page.evaluate(() => window.times.prompt), 'ms');
		page.done();
	});
}

test('Check: a mistake has its check, and a hint; what does not compile is not checked', async () => {
	const page = await reader();

	await write_exercises(page, '04-qp-states');
	await page.evaluate(() =>
		document.querySelector('button[aria-label="Edit 04-qp-states/exercise.c"]').click());
	await edit(page, 'IBV_MTU_1024', 'IBV_MTU_256');
	let seen = await press(page, 'Check 04-qp-states/exercise.c');
	assert.equal(seen.exit, '1', seen.output);
	assert.match(seen.output, /^  ok    04\.1 [^]*^  FAIL  04\.2 [^]*path_mtu should be/m);
	seen = await command(page, 'make hint-04');
	assert.match(seen.output, /^04\.2 .*\nhint 1 of 4/m);
	// Typed into a guest that has checked something before, this makes the page start another.
	await edit(page, 'IBV_MTU_256', 'IBV_MTU_1024oops');
	seen = await command(page, 'make check-04');
	assert.notEqual(seen.exit, '0', seen.output);
	assert.doesNotMatch(seen.output, /04\.1/);
	assert.match(await page.$eval('#problems button', button => button.textContent),
		/^04-qp-states\/exercise\.c, line \d+: /);
	page.done();
});

test('Check: a program that loops is ended by the check, and by Stop', async () => {
	const page = await reader();

	await page.evaluate(() =>
		document.querySelector('button[aria-label="Edit 04-qp-states/exercise.c"]').click());
	await edit(page, 'start_output();', 'start_output(); for (;;);');
	const seen = await press(page, 'Check 04-qp-states/exercise.c');
	assert.equal(seen.exit, '1', seen.output);
	assert.match(seen.output, /FAIL  04\.1 [^]*stopped: it still ran after 10 s/);

	await page.evaluate(() => {
		delete window.times.starts;
		document.getElementById('check').click();
	});
	await wait_for(page, () => window.times.starts !== undefined);
	await page.click('#stop');
	await wait_for(page, () => document.documentElement.dataset.guest === 'ready');
	const after = await press(page, 'Run 00-hello/hello.c');
	assert.equal(after.exit, '0', after.output);
	page.done();
});

test('a program that loops is stopped, one that ignores signals as well', async () => {
	const page = await reader();

	await press(page, 'Run 00-hello/hello.c');
	await edit(page, '\n{\n', '\n{\n\tfor (;;)\n\t\t;\n');
	for (const loop of ['for (;;)\n\t\t;', 'signal(2, (void (*)(int))1);\n\tfor (;;)\n\t\tputs("again");']) {
		await page.evaluate(loop => window.workbook.editor.dispatch({ changes: {
			from: 0, to: window.workbook.editor.state.doc.length,
			insert: `#include <signal.h>\n#include <stdio.h>\nint main(void)\n{\n\t${loop}\n}\n` } }), loop);
		await page.evaluate(() => { window.times.starts = 0; document.getElementById('run').click(); });
		await wait_for(page, () => window.times.starts > 0);
		await page.click('#stop');
		await wait_for(page, () => document.documentElement.dataset.guest === 'ready');
	}
	await page.click('#reset');
	const { exit, output } = await press_run(page);
	assert.equal(exit, '0', output);
	page.done();
});

test('two guests: each runs its side, the packets are drawn, and both are stopped', async () => {
	const page = await reader();
	const packets = () => page.$$eval('#packets li', all => all.map(row =>
		[row.className, row.textContent.replaceAll(/\s+/g, ' ').trim()].join(': ')));

	const { exit, output } = await press(page, 'Run 05-pingpong/pingpong.c between two guests');
	const client = await shown(page, 'client'), drawn = await packets();

	assert.equal(exit, '0', `${output}\n${client}`);
	for (const side of [output, client])
		assert.match(side, /^verified: every byte of 3 of 3 messages/m);
	assert.match(client, /local address: .*::ffff:10\.9\.0\.2/);
	// Messages of 4096 bytes each way, in packets of 1024 bytes. On a slow machine packets
	// are sent again, so that not all of them are shown.
	for (const side of ['server', 'client']) {
		const own = drawn.filter(row => row.startsWith(`${side}: `));

		assert.ok(own.some(row => /SEND First PSN 0x\w{6} 1024 bytes/.test(row)), drawn.join('\n'));
		assert.ok(own.some(row => /Acknowledge PSN 0x\w{6} ACK, MSN \d/.test(row)), drawn.join('\n'));
	}
	await shot(page, 'two-guests-1280-light');

	// Both sides run when Stop is pressed.
	await page.evaluate(() => window.workbook.run('make wire-05 ARGS="-n 1000000"', true));
	await wait_for(page, () => document.getElementById('packets').textContent.includes('not shown'));
	await page.click('#stop');
	await wait_for(page, () => document.documentElement.dataset.guest === 'ready');
	assert.notEqual(await page.evaluate(() => document.documentElement.dataset.exit), '0');

	const single = await press_run(page);
	assert.equal(single.exit, '0', single.output);
	assert.equal(await page.$eval('#client', pane => pane.hidden), true, 'one guest is enough again');
	page.done();
});

test('a megabyte of output', async () => {
	const page = await reader();

	await press(page, 'Run 00-hello/hello.c');
	await page.evaluate(() => window.workbook.editor.dispatch({ changes: {
		from: 0, to: window.workbook.editor.state.doc.length,
		insert: '#include <stdio.h>\nint main(void)\n{\n\tfor (int i = 0; i < 20000; i++)\n' +
			'\t\tprintf("%06d 0123456789012345678901234567890123456789\\n", i);\n\treturn 7;\n}\n' } }));
	const { exit, output } = await press_run(page);
	assert.equal(exit, '7');
	assert.match(output, /^019999 0123/m);
	page.done();
});

test('a guest that crashes is replaced, and nothing that was written is lost', async () => {
	const page = await reader();

	await press(page, 'Run 00-hello/hello.c');
	await edit(page, '/*', '/* mine: ');
	await page.evaluate(() => window.workbook.run('busybox halt -f'));
	await wait_for(page, () => document.documentElement.dataset.guest === 'busy');
	const { exit, output } = await press_run(page);
	assert.equal(exit, '0', output);
	assert.match(await page.evaluate(() => window.workbook.content('00-hello/hello.c')), /mine: /);
	await page.evaluate(() => document.getElementById('fresh').click());
	await wait_for(page, () => document.documentElement.dataset.guest === 'ready');
	assert.equal((await press_run(page)).exit, '0');
	page.done();
});

test('without WebAssembly the text and the editor work, and the page says so', async () => {
	const page = await reader({ prepare: page =>
		page.evaluateOnNewDocument(() => { delete window.WebAssembly; }) });
	const { state } = await press(page, 'Run 00-hello/hello.c');

	assert.equal(state, 'failed');
	assert.match(await page.$eval('#trouble', part => part.textContent), /no WebAssembly.*make run-00/);
	await edit(page, '/*', '/* mine: ');
	page.done();
});

// From the worker with this number on, each begins with a WebAssembly that has no memory
// left. What the page sends it before it is loaded is kept.
const refuse_memory = (page, from) => page.evaluate(from => {
	const Real = window.Worker;
	let count = 0;

	window.Worker = function (url, options) {
		const absolute = new URL(url, location.href).href;
		const code = `WebAssembly.instantiate = () => Promise.reject(new RangeError('out of memory'));
			const early = [];
			self.onmessage = event => early.push(event);
			await import(${JSON.stringify(absolute)});
			early.forEach(event => self.onmessage(event));`;

		return new Real(count++ < from ? url :
			URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), options);
	};
}, from);

test('too little memory: the page says so', async () => {
	const page = await reader();

	await refuse_memory(page, 0);
	const { state } = await press(page, 'Run 00-hello/hello.c');
	assert.equal(state, 'failed');
	assert.match(await page.$eval('#trouble', part => part.textContent), /memory/);
});

test('too little memory for a second guest: the page says so, and goes on with one', async () => {
	const page = await reader();

	await refuse_memory(page, 1);
	const { state } = await press(page, 'Run 05-pingpong/pingpong.c between two guests');
	assert.equal(state, 'failed');
	assert.match(await page.$eval('#trouble', part => part.textContent),
		/no second guest: .*memory.* Run starts both sides in one guest/);
	const { exit, output } = await press_run(page);
	assert.equal(exit, '0', output);
	assert.equal(await page.$eval('#trouble', part => part.hidden), true);
});

test('a browser that keeps nothing: the page says so', async () => {
	const page = await reader({ prepare: page => page.evaluateOnNewDocument(() =>
		Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })) });

	await page.evaluate(() => document.querySelector('button[aria-label="Edit 00-hello/hello.c"]').click());
	await edit(page, '/*', '/* mine: ');
	assert.equal(await page.$eval('#storage', part => part.hidden), false);
	page.done();
});

test('a download that breaks off is tried again', async () => {
	const page = await reader();

	breaks_off = path => path === '/state.zst';
	const first = await press(page, 'Run 00-hello/hello.c');

	breaks_off = () => false;
	assert.equal(first.state, 'failed');
	assert.match(await page.$eval('#trouble', part => part.textContent), /broke off/);
	const { exit, output } = await press(page, 'Run 00-hello/hello.c');
	assert.equal(exit, '0', output);
	page.done();
});

test('"New guest" during the download does not start one more emulator each time', async () => {
	const page = await reader({ prepare: page => page.evaluateOnNewDocument(() => {
		const Real = window.Worker;

		window.started = 0;
		window.Worker = function (...given) {
			++window.started;
			return new Real(...given);
		};
	}) });

	await page.evaluate(() => {
		document.querySelector('button[aria-label="Edit 00-hello/hello.c"]').click();
		for (let i = 0; i < 3; i++)
			document.getElementById('fresh').click();
	});
	const { exit, output } = await press(page, 'Run 00-hello/hello.c');
	assert.equal(exit, '0', output);
	assert.equal(await page.evaluate(() => window.started), 1);
	page.done();
});

test('what is written in one tab is shown in the other', async () => {
	const page = await reader(), other = await page.browserContext().newPage();
	const begin = tab => tab.evaluate(() => {
		document.querySelector('button[aria-label="Edit 00-hello/hello.c"]').click();
	});

	await other.goto(address);
	await begin(page);
	await begin(other);
	await edit(page, '/*', '/* mine: ');
	await wait_for(other, () => window.workbook.editor.state.doc.toString().startsWith('/* mine: '));
	page.done();
});

test('a tab that slept goes on', async () => {
	const page = await reader();

	await press(page, 'Run 00-hello/hello.c');
	const devtools = await page.createCDPSession();
	await devtools.send('Page.setWebLifecycleState', { state: 'frozen' });
	await new Promise(resolve => setTimeout(resolve, 3000));
	await devtools.send('Page.setWebLifecycleState', { state: 'active' });
	const { exit, output } = await press_run(page);
	assert.equal(exit, '0', output);
	page.done();
});

test('on a telephone, light and dark: no scrolling sideways, and it runs', async () => {
	for (const dark of [false, true]) {
		const page = await reader({ width: 390, height: 844, dark });
		const name = dark ? 'dark' : 'light';

		assert.equal(await page.evaluate(() => document.documentElement.scrollWidth -
			document.documentElement.clientWidth), 0);
		await shot(page, `text-390-${name}`);
		const { exit, output } = await press(page, 'Run 05-pingpong/pingpong.c');
		assert.equal(exit, '0', output);
		await shot(page, `pingpong-390-${name}`);
		const both = await press(page, 'Run 05-pingpong/pingpong.c between two guests');
		assert.equal(both.exit, '0', both.output);
		await page.$eval('#wire', pane => pane.scrollIntoView());
		await shot(page, `two-guests-390-${name}`);
		assert.equal(await page.evaluate(() => document.documentElement.scrollWidth -
			document.documentElement.clientWidth), 0);
		page.done();
	}
	if (SHOTS) {
		const page = await reader({ dark: true });

		await shot(page, 'text-1280-dark');
		await press(page, 'Run 05-pingpong/pingpong.c');
		await shot(page, 'pingpong-1280-dark');
		page.done();
	}
});

// FIGURES=5 tests/web/run build/web figures: medians, of a reader who was here before.
const measure = process.env.FIGURES ? test : () => {};

measure('figures', async () => {
	const figures = {}, page = await reader();
	const nothing = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000));
	const take = async name => {
		const times = await page.evaluate(() => window.times);

		(figures[name] ??= []).push(times.output);
		if (times.compiling)
			(figures[`${name}, of this the compiler`] ??= []).push(times.starts - times.compiling);
	};

	await press(page, 'Run 00-hello/hello.c');
	console.log('bytes until the first output:', page.bytes);
	for (let i = 0; i < +process.env.FIGURES; i++) {
		await page.reload();
		await press(page, 'Run 00-hello/hello.c');
		await take('first click, as soon as the page is there');
		await press(page, 'Run 00-hello/hello.c');
		await take('later click');
		await nothing(5);
		await edit(page, '/*', '/* mine: ');
		await press_run(page);
		await take('first click after a change');
		await edit(page, '/*', '/* mine: ');
		await press_run(page);
		await take('later click after a change');
		await page.click('#reset');
		await page.reload();
		await page.mouse.move(100 + i, 100);
		await nothing(5);
		await press(page, 'Run 00-hello/hello.c');
		await take('first click, five seconds after the page is there');
	}
	for (const [name, all] of Object.entries(figures))
		console.log(name, all.sort((a, b) => a - b)[all.length >> 1], 'ms; all:', all.join(' '));
});
