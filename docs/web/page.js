// page.js - what makes the book a workbook: Run and Edit beside the text, and the bench
// with the editor and the guest's terminal
//
// The text is there before any of this, and stays if something of it fails. The guest is
// downloaded when somebody runs something for the first time.
import { EditorState } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter,
	highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting }
	from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { lintGutter, setDiagnostics } from '@codemirror/lint';
import { cpp } from '@codemirror/lang-cpp';
import { tags } from '@lezer/highlight';
import { Terminal } from '@xterm/xterm';
import { FitAddon } from '@xterm/addon-fit';
import { Guest } from './guest.js';
import { Drawing } from './packets.js';

const files = JSON.parse(document.getElementById('files').textContent);
const $ = id => document.getElementById(id);
const bench = $('bench'), picker = $('file'), options = $('options');

// --- the files ---------------------------------------------------------------

const is_exercise = path => /\/(exercise|broken)\.c$/.test(path);
// The text of each file at the end of this page is its original. In each chapter the worked
// programs come first, then exercise.c, then broken.c.
const order = path => path.slice(0, 2) * 3 +
	['exercise', 'broken'].findIndex(name => path.endsWith(`/${name}.c`));
const originals = new Map([...document.querySelectorAll('#sources h2')]
	.filter(heading => /^\d\d-.*\/\w+\.c$/.test(heading.textContent))
	.map(heading => [heading.textContent,
		`${heading.parentElement.querySelector('pre').textContent}\n`])
	.sort(([a], [b]) => order(a) - order(b)));
const is_two_sided = path => /^ \* Sides:/m.test(originals.get(path));
const chapter_of = path => path.slice(0, 2);
const name_of = path => path.replace(/^.*\/(.*)\.c$/, '$1');

// What the reader has changed, kept by the browser if it lets us.
const changed = new Map();
const key = path => `rdma-workbook ${path}`;

for (const path of originals.keys()) {
	try {
		const kept = localStorage.getItem(key(path));

		if (kept !== null)
			changed.set(path, kept);
	} catch {
		// No storage: whoever writes something is told in keep().
	}
}

const content = path => changed.get(path) ?? originals.get(path);

function keep(path, text) {
	if (text === originals.get(path))
		changed.delete(path);
	else
		changed.set(path, text);
	try {
		if (changed.has(path))
			localStorage.setItem(key(path), text);
		else
			localStorage.removeItem(key(path));
		$('storage').hidden = true;
	} catch {
		$('storage').hidden = false;
	}
	$('reset').disabled = !changed.has(path);
}

// What is written in another tab is shown here, too: otherwise the next key here would undo it.
addEventListener('storage', event => {
	const path = [...originals.keys()].find(path => key(path) === event.key);

	if (!path)
		return;
	if (event.newValue === null)
		changed.delete(path);
	else
		changed.set(path, event.newValue);
	if (editor && picker.value === path)
		open_file(path);
});

// --- the editor --------------------------------------------------------------

const colours = HighlightStyle.define([
	{ tag: tags.comment, color: 'var(--comment)', fontStyle: 'italic' },
	{ tag: [tags.keyword, tags.controlKeyword, tags.modifier], color: 'var(--keyword)' },
	{ tag: [tags.typeName, tags.standard(tags.typeName)], color: 'var(--type)' },
	{ tag: [tags.string, tags.character], color: 'var(--string)' },
	{ tag: [tags.number, tags.bool, tags.null], color: 'var(--number)' },
	{ tag: [tags.processingInstruction, tags.macroName], color: 'var(--macro)' },
]);
const extensions = [
	lineNumbers(), highlightActiveLineGutter(), highlightSpecialChars(), history(),
	drawSelection(), EditorState.tabSize.of(8), indentUnit.of('\t'), indentOnInput(),
	bracketMatching(), highlightActiveLine(), highlightSelectionMatches(), search(),
	lintGutter(), cpp(), syntaxHighlighting(colours),
	keymap.of([...['Ctrl-Enter', 'Mod-Enter'].map(key => ({ key, run: () => (run_file(), true) })),
		// Every change is kept, so there is nothing to save; the browser would save the page.
		{ key: 'Mod-s', run: () => true },
		...defaultKeymap, ...searchKeymap, ...historyKeymap, indentWithTab]),
	EditorView.contentAttributes.of({ 'aria-label': 'Editor. Escape, then Tab, leaves it.' }),
	EditorView.updateListener.of(update => {
		if (update.docChanged)
			keep(picker.value, update.state.doc.toString());
	}),
];
let editor;

function open_file(path) {
	picker.value = path;
	editor ??= new EditorView({ parent: $('editor') });
	editor.setState(EditorState.create({ doc: content(path), extensions }));
	$('reset').disabled = !changed.has(path);
	$('pair').hidden = !is_two_sided(path);
	$('check').hidden = !is_exercise(path);
	show_errors();
}

// An error or a warning of the compiler, such as "05-pingpong/pingpong.c:12: error: ';' expected".
const errors = [];

function compiler_said(line) {
	const [, path, number, message] = line.match(/^(.*?):(\d+): (.*)$/) ?? [];

	if (!originals.has(path))
		return;
	errors.push({ path, number: +number, message });
	const item = document.createElement('li'), button = document.createElement('button');

	button.textContent = `${path}, line ${number}: ${message}`;
	button.onclick = () => go_to(path, +number);
	item.append(button);
	// tcc ends at its first error; the warnings before it matter less.
	if (message.startsWith('warning')) {
		$('problems').append(item);
	} else {
		$('problems').prepend(item);
		go_to(path, +number);
	}
	show_errors();
}

function go_to(path, number) {
	show_file(path);
	const line = editor.state.doc.line(Math.min(number, editor.state.doc.lines));

	editor.dispatch({ selection: { anchor: line.from },
		effects: EditorView.scrollIntoView(line.from, { y: 'center' }) });
	// Who is typing in the terminal goes on there.
	if (!$('panes').contains(document.activeElement))
		editor.focus();
}

function forget_errors() {
	errors.length = 0;
	$('problems').replaceChildren();
	show_errors();
}

function show_errors() {
	const { doc } = editor.state;

	editor.dispatch(setDiagnostics(editor.state, errors
		.filter(error => error.path === picker.value).map(error => {
			const line = doc.line(Math.min(error.number, doc.lines));

			return { from: line.from, to: line.to, message: error.message,
				severity: error.message.startsWith('warning') ? 'warning' : 'error' };
		})));
}

// --- the terminals -----------------------------------------------------------

// The places for a guest, each with its terminal. The second one is for "Two guests";
// everything else runs in the first one.
const seats = ['server', 'client'].map(name => ({ name, fit: new FitAddon(),
	terminal: new Terminal({ fontSize: 13, scrollback: 5000, cursorBlink: false }) }));
const [server, client] = seats;
const packets = new Drawing($('packets'), $('packet-count'));

function paint_terminal({ terminal }) {
	const style = getComputedStyle(document.documentElement);
	const colour = name => style.getPropertyValue(name).trim();

	terminal.options.theme = { background: colour('--soft'), foreground: colour('--text'),
		cursor: colour('--text'), cursorAccent: colour('--soft'),
		selectionBackground: colour('--line') };
	terminal.options.fontFamily = getComputedStyle(document.querySelector('code')).fontFamily;
}

function open_terminal(seat) {
	const { name, terminal, fit } = seat;

	if (terminal.element)
		return;
	terminal.loadAddon(fit);
	paint_terminal(seat);
	terminal.open($(`${name}-terminal`));
	terminal.textarea.setAttribute('aria-label', seat === server ?
		'Terminal of the guest. Shift-Tab leaves it.' :
		'Terminal of the second guest. Shift-Tab leaves it.');
	// Tab completes words in the shell, so a reader without a mouse needs another way out.
	terminal.attachCustomKeyEventHandler(({ key, shiftKey }) => !(key === 'Tab' && shiftKey));
	terminal.onData(keys => seat.guest?.type(keys));
	terminal.onResize(({ rows, cols }) =>
		seat.guest?.ask(`size ${rows} ${cols}`).catch(() => {}));
	new ResizeObserver(() => fit.fit()).observe($(`${name}-terminal`));
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
		paint_terminal(seat));
}

// The second guest is there as long as its pane is, because it takes much memory.
function show_pair(is_on) {
	document.body.classList.toggle('with-pair', is_on);
	for (const part of ['server-label', 'client', 'wire'])
		$(part).hidden = !is_on;
	if (is_on)
		open_terminal(client);
	else
		end_guest(client);
	packets.clear();
}

// A frame leaves one guest, and arrives at the other one.
function cross(from, frame) {
	if (!server.guest || !client.guest)
		return;
	packets.add(from.name, frame);
	(from === server ? client : server).guest.receive(frame);
}

// --- the guests --------------------------------------------------------------

let clicked = 0, is_output_due = false, is_compiled = true;
// Where a command runs whose exit status is to be shown.
const due = new Set();
// The guest whose compiler has been run.
let warmed;
// For the tests, and for whoever measures: milliseconds after the click.
const times = window.times = {};
const since = name => { times[name] = Math.round(performance.now() - clicked); };

function say(state, words) {
	document.documentElement.dataset.guest = state;
	$('status').textContent = words;
	$('stop').disabled = state !== 'busy';
}

const megabytes = count => (count / 1e6).toFixed(1);

function said(seat, line) {
	if (line === 'busy') {
		is_compiled = true;
		say('busy', 'The guest is busy.');
	} else if (line.startsWith('prompt ')) {
		over(seat, line.slice(7));
	} else if (seat === client) {
		// It has compiled the same file as the first guest.
	} else if (line.startsWith('compiling ')) {
		forget_errors();
		since('compiling');
		say('busy', `Compiling ${line.slice(10)}`);
	} else if (line.startsWith('error ')) {
		compiler_said(line.slice(6));
	} else if (line === 'not compiled') {
		is_compiled = false;
	} else if (line.startsWith('checking ')) {
		since('starts');
		say('busy', `Checking ${line.slice(9)}. This takes a while.`);
	} else if (line.startsWith('again ')) {
		// Somebody has typed this in a guest that has checked something before.
		run(line.slice(6));
	} else if (line === 'starts') {
		since('starts');
		is_output_due = true;
		say('busy', 'The program runs.');
	}
}

// A command has ended. Of two sides the server's exit status counts unless that is 0.
function over(seat, status) {
	seat.status = status;
	since('prompt');
	if (due.delete(seat) && !due.size) {
		status = server.status === '0' ? client.status : server.status;
		document.documentElement.dataset.exit = status;
	}
	if (due.size || seats.some(({ guest }) => guest?.is_busy))
		return;
	say('ready', !is_compiled ? 'The program does not compile.' :
		`The guest waits for a command. Exit status of the last one: ${status}.`);
	warm();
}

// The reader may change something next, and wait for the compiler then.
function warm() {
	if (server.guest && warmed !== server.guest)
		server.guest.ask('warm').catch(() => {});
	warmed = server.guest;
}

// A screen reader speaks #trouble at once, so #status need not say it again.
function trouble(words) {
	say('failed', '');
	$('trouble').textContent = words;
	$('trouble').hidden = false;
}

// A guest that runs, the same one as long as it does.
function get_guest(seat = server) {
	seat.starting ??= (async () => {
		const it = seat.newest = new Guest({
			output: bytes => {
				if (seat === server && is_output_due) {
					is_output_due = false;
					since('output');
				}
				seat.terminal.write(bytes);
			},
			said: line => said(seat, line),
			sent: frame => cross(seat, frame),
			failed: why => {
				it.end(why);
				if (seat.newest !== it)
					return;
				seat.starting = seat.guest = undefined;
				due.delete(seat);
				trouble(`The guest has crashed: ${why}. "New guest" starts another one; ` +
					'what you wrote is kept.');
			},
		});

		$('trouble').hidden = true;
		say('loading', 'Getting the guest ...');
		let told = 0;

		try {
			await it.begin(files, (count, total) => {
				// A screen reader speaks each of these sentences: one for a megabyte.
				if (count < total && count < told + 1e6)
					return;
				told = count;
				say('loading', 'Downloading the guest, which is needed only once: ' +
					`${megabytes(count)} of ${megabytes(total)} MB.`);
			});
			if (seat === client)
				await it.ask('client');
			// Nobody waits any more for a guest that was replaced meanwhile.
			if (seat.newest !== it)
				throw new Error('another guest was started');
			since('running');
			seat.guest = it;
			seat.terminal.reset();
			seat.fit.fit();
			await it.ask(`size ${seat.terminal.rows} ${seat.terminal.cols}`);
			// The shell draws its prompt again.
			it.type('\x0c');
			say('ready', 'The guest waits for a command.');
			return it;
		} catch (error) {
			it.end();
			if (seat.newest === it) {
				end_guest(seat);
				trouble(seat === server ? `There is no guest: ${error.message}. The text and ` +
					'the editor work all the same. To try it again, press Run. On your own ' +
					'machine the workbook runs with: make run-00' : 'There is no second ' +
					`guest: ${error.message}. Run starts both sides in one guest.`);
			}
			throw error;
		}
	})();
	return seat.starting;
}

function end_guest(seat) {
	seat.newest?.end();
	seat.newest = seat.starting = seat.guest = undefined;
	due.delete(seat);
}

// Whoever has run something before has this guest in the browser's cache, and may run
// something again: for them it starts with the first sign of life. A newer guest has another
// address, and is downloaded only for whoever runs something.
const reader_key = 'rdma-workbook guest';

function remember_reader() {
	try {
		localStorage.setItem(reader_key, files.state.url);
	} catch {
		// Then it starts later.
	}
}

function start_early() {
	const begin = () => {
		if (!server.starting && $('trouble').hidden)
			get_guest().then(warm, () => {});
	};
	let was_here = false;

	try {
		was_here = localStorage.getItem(reader_key) === files.state.url;
	} catch {
		// As for a new reader.
	}
	if (was_here) {
		for (const sign of ['pointermove', 'pointerdown', 'keydown', 'scroll'])
			addEventListener(sign, begin, { once: true, passive: true });
	}
}

// Ends a guest and starts a fresh one.
function new_guest(seat = server) {
	end_guest(seat);
	return get_guest(seat);
}

// Whatever runs in the guests ends. A guest that does not manage that ends itself.
function stop() {
	say('busy', 'Stopping it ...');
	return Promise.all(seats.filter(seat => seat.guest).map(stop_guest));
}

async function stop_guest(seat) {
	const it = seat.guest;

	try {
		await it.stop();
	} catch {
		if (it === seat.guest) {
			due.clear();
			await new_guest(seat);
			say('ready', 'The guest did not answer, so this is a new one. What you wrote ' +
				'is kept.');
		}
	}
}

// A guest that waits for a command, with the reader's files as they are now.
async function ready_guest(seat, command) {
	let it = await get_guest(seat);

	// The hint is for what that guest has checked.
	if (it.is_spent && !command.startsWith('make hint-'))
		await new_guest(seat);
	else if (it.is_busy)
		await stop_guest(seat);
	try {
		it = await get_guest(seat);
		await it.ask('hello', 3);
		await put_files(it);
	} catch {
		it = await new_guest(seat);
		seat.terminal.write('The guest did not answer, so this is a new one.\r\n');
		await put_files(it);
	}
	return it;
}

// Gives the guest the reader's files, where it has others.
async function put_files(it) {
	for (const path of originals.keys()) {
		const text = content(path);

		if (text !== (it.files.get(path) ?? originals.get(path))) {
			await it.put(path, text);
			it.files.set(path, text);
		}
	}
}

// One command at a time gets its guests ready: what a guest answers does not name the request.
let runs = 0, before = Promise.resolve();

// Types `command` into the guest's shell; or, for two guests, into both, and tells each
// which side it is.
async function run(command, is_pair = false) {
	const mine = ++runs, chosen = is_pair ? seats : [server];

	clicked = performance.now();
	for (const name in times)
		delete times[name];
	due.clear();
	server.status = client.status = '0';
	delete document.documentElement.dataset.exit;
	open_bench();
	show_pair(is_pair);
	forget_errors();
	$('trouble').hidden = true;
	say('loading', 'Getting the guest ...');
	const ready = before.then(() => mine === runs ?
		Promise.all(chosen.map(seat => ready_guest(seat, command))) : []);

	before = ready.catch(() => {});
	try {
		const guests = await ready;

		// Somebody has pressed another button meanwhile.
		if (mine !== runs)
			return;
		for (const [i, it] of guests.entries()) {
			due.add(chosen[i]);
			// Ctrl-E, Ctrl-U: what somebody has typed and not sent is no part of the command.
			it.type(`\x05\x15${command}${is_pair ? ` SIDE=${chosen[i].name}` : ''}\r`);
		}
		remember_reader();
	} catch (error) {
		console.warn(error);
		if (mine === runs && $('trouble').hidden)
			trouble(`The command did not start: ${error.message}. Press "New guest", then Run.`);
	}
}

function run_file() {
	run(command_of(picker.value, options.value.trim()));
}

// What `make wire-NN` runs on a machine of one's own, where it takes the main program.
function run_pair() {
	run(command_of(picker.value, options.value.trim(), 'wire'), true);
}

function check() {
	run(`make check-${chapter_of(picker.value)}`);
}

function command_of(path, args = '', goal = is_exercise(path) ? 'try' : 'run') {
	const words = ['make', `${goal}-${chapter_of(path)}`];

	if (is_exercise(path) ? name_of(path) !== 'exercise' : !is_main(path))
		words.push(`PROGRAM=${name_of(path)}`);
	if (args)
		words.push(`ARGS=${/^[\w.:=/-]+$/.test(args) ? args : `'${args.replaceAll("'", "'\\''")}'`}`);
	return words.join(' ');
}

// The main program of 05-pingpong is pingpong.c; the guest's `make` has the same rule.
function is_main(path) {
	const folder = path.replace(/\/.*/, '');
	const main = `${folder}/${folder.slice(3).replaceAll('-', '_')}.c`;
	const own = [...originals.keys()].filter(other => other.startsWith(`${folder}/`));

	return path === (originals.has(main) ? main : own[0]);
}

// --- the page ----------------------------------------------------------------

// What had the focus when the bench was opened.
let opener;

function open_bench() {
	if (bench.hidden) {
		opener = document.activeElement;
		bench.hidden = false;
		document.body.classList.add('with-bench');
		if (!editor)
			open_file(picker.value);
		open_terminal(server);
	}
}

// A file that is open stays as it is, with its cursor and what can be undone.
function show_file(path) {
	open_bench();
	if (picker.value !== path)
		open_file(path);
}

function edit(path) {
	show_file(path);
	editor.focus();
}

function button(words, label, action) {
	const made = document.createElement('button');

	made.type = 'button';
	made.textContent = words;
	made.title = label;
	made.setAttribute('aria-label', label);
	made.onclick = action;
	return made;
}

for (const path of originals.keys())
	picker.append(new Option(path, path));

const tools = path => {
	const bar = document.createElement('p'), name = document.createElement('code');

	bar.className = 'tools';
	name.textContent = path;
	bar.append(name, button('Run', `Run ${path}`, () => {
		show_file(path);
		options.value = '';
		run(command_of(path));
	}), button('Edit', `Edit ${path}`, () => edit(path)));
	if (is_exercise(path)) {
		bar.append(button('Check', `Check ${path}`, () => {
			show_file(path);
			check();
		}));
	}
	if (is_two_sided(path)) {
		bar.append(button('Two guests', `Run ${path} between two guests`, () => {
			show_file(path);
			options.value = '';
			run_pair();
		}));
	}
	return bar;
};

// Below the heading of a chapter its programs, and below that of a source its own.
for (const path of originals.keys()) {
	const chapter = $(path.replace(/\/.*/, '')), source = $(path.replace(/[/.]/g, '-'));
	let bar = chapter?.querySelector(':scope > .programs');

	if (chapter && !bar) {
		bar = document.createElement('div');
		bar.className = 'programs';
		chapter.querySelector('h1').after(bar);
	}
	bar?.append(tools(path));
	source?.querySelector('h2')?.after(tools(path));
}

// Beside each command of the text that the guest can do, a button that does it.
const can_do = /^(make (run|try)-\d\d( (PROGRAM=\w+|ARGS=("[^"]*"|'[^']*'|\S+)))*( \| grep \S+)?|make (check|hint)-\d\d|make wire-\d\d( ARGS=("[^"]*"|'[^']*'|\S+))?|rdma (link|resource show( \w+)?|-d resource show( \w+)?)|ibv_devinfo( -v)?|ibv_devices)$/;

for (const code of document.querySelectorAll('main code')) {
	const is_block = code.parentElement.matches('pre');

	if (code.closest('#sources, .tools, .programs') || code.closest('a'))
		continue;
	const commands = is_block ?
		code.textContent.split('\n').filter(line => line.startsWith('$ ')).map(line => line.slice(2)) :
		[code.textContent];

	for (const command of commands.filter(command => can_do.test(command))) {
		const label = `Run ${command} in the guest`;
		const action = () => run(command, command.startsWith('make wire-'));

		if (is_block) {
			const made = button(`Run: ${command}`, label, action);

			made.className = 'run-block';
			(code.closest('div.sourceCode') ?? code.parentElement).before(made);
		} else {
			const made = button('▶', label, action);

			made.className = 'run-here';
			code.after(made);
		}
	}
}

picker.onchange = () => open_file(picker.value);
$('run').onclick = run_file;
options.onkeydown = event => {
	if (event.key === 'Enter')
		run_file();
};
$('pair').onclick = run_pair;
$('check').onclick = check;
$('stop').onclick = stop;
$('fresh').onclick = () => {
	++runs;		// a command that still waits does not start in the new guest
	show_pair(false);
	new_guest().catch(() => {});
};
$('reset').onclick = () => {
	if (confirm(`Throw away what you changed in ${picker.value}?`)) {
		editor.dispatch({ changes: { from: 0, to: editor.state.doc.length,
			insert: originals.get(picker.value) } });
		forget_errors();
	}
};
$('download').onclick = () => {
	const link = document.createElement('a');

	link.href = URL.createObjectURL(new Blob([content(picker.value)], { type: 'text/plain' }));
	link.download = picker.value.replace(/.*\//, '');
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
$('reader').onclick = () => {
	const is_on = !server.terminal.options.screenReaderMode;

	for (const { terminal } of seats)
		terminal.options.screenReaderMode = is_on;
	$('reader').setAttribute('aria-pressed', is_on);
};
$('close').onclick = () => {
	bench.hidden = true;
	document.body.classList.remove('with-bench');
	(opener === document.body ? $('open') : opener).focus();
};
$('open').onclick = () => {
	open_bench();
	picker.focus();
};
$('open').hidden = false;
// A tab that slept has a guest whose clock stood still.
document.addEventListener('visibilitychange', () => {
	for (const { guest } of document.hidden ? [] : seats)
		guest?.ask(`date ${Math.floor(Date.now() / 1000)}`).catch(() => {});
});
// For the tests, and for whoever looks at this from the browser's console.
window.workbook = { originals, content, run, terminal: server.terminal,
	client: client.terminal, get editor() { return editor; } };
say('none', 'The guest starts when you run something.');
start_early();
