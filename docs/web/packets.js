// packets.js - draws the packets between two guests, as `make wire-NN` does
//
// A frame is read as docs/wire.md describes it: Ethernet, IP, UDP to port 4791, and then
// the headers of InfiniBand's transport. All other frames are left out.

// The packets of a connection by their opcodes, in the words of the IBTA specification,
// and how many bytes of further headers follow the BTH.
const kinds = [['SEND First', 0], ['SEND Middle', 0], ['SEND Last', 0],
	['SEND Last with Imm', 4], ['SEND Only', 0], ['SEND Only with Imm', 4],
	['RDMA WRITE First', 16], ['RDMA WRITE Middle', 0], ['RDMA WRITE Last', 0],
	['RDMA WRITE Last with Imm', 4], ['RDMA WRITE Only', 16],
	['RDMA WRITE Only with Imm', 20], ['RDMA READ Request', 16],
	['RDMA READ Response First', 4], ['RDMA READ Response Middle', 0],
	['RDMA READ Response Last', 4], ['RDMA READ Response Only', 4], ['Acknowledge', 4],
	['ATOMIC Acknowledge', 12], ['CmpSwap', 28], ['FetchAdd', 28]];
// The messages of the connection manager, by the attribute in their header.
const cm_messages = ['REQ', 'MRA', 'REJ', 'REP', 'RTU', 'DREQ', 'DREP'];
const naks = ['PSN sequence', 'invalid request', 'remote access', 'remote operation'];

// What an ACK extended transport header says.
function answer(syndrome, msn) {
	const code = syndrome & 31;

	switch (syndrome >> 5) {
	case 0: return `ACK, MSN ${msn}`;
	case 1: return 'NAK: receiver not ready';
	default: return `NAK: ${naks[code] ?? code}`;
	}
}

// What a RoCE packet is: its name, its PSN, and how much it carries or what it answers.
// Undefined if the frame is no RoCE packet.
export function decode(frame) {
	// The headers alone. If a frame is shorter than they are, the rest is zeros.
	const head = new Uint8Array(128), view = new DataView(head.buffer);
	let udp;

	head.set(frame.subarray(0, head.length));
	if (view.getUint16(12) === 0x0800 && head[23] === 17)
		udp = 14 + 4 * (head[14] & 15);
	else if (view.getUint16(12) === 0x86dd && head[20] === 17)
		udp = 14 + 40;
	if (!udp || view.getUint16(udp + 2) !== 4791)
		return undefined;

	const bth = udp + 8, opcode = head[bth], pad = head[bth + 1] >> 4 & 3;
	const number = at => view.getUint32(at) & 0xffffff;

	// A datagram, behind whose header of 8 bytes a message of the connection manager is.
	if (opcode >> 5 === 3) {
		const name = cm_messages[view.getUint16(bth + 12 + 8 + 16) - 0x10];

		return { name: name ? `CM ${name}` : 'datagram', psn: '', what: '' };
	}
	const [name, headers] = kinds[opcode] ?? [`opcode ${opcode}`, 0];
	const psn = `PSN 0x${number(bth + 8).toString(16).padStart(6, '0')}`;
	const length = view.getUint16(udp + 4) - 8 - 12 - headers - pad - 4;

	return { name, psn, what: name === 'Acknowledge' ?
		answer(head[bth + 12], number(bth + 12)) : `${length} byte${length === 1 ? '' : 's'}` };
}

// The first and the last packets are shown: nobody reads a thousand of them.
const first = 60, last = 20;

export class Drawing {
	#list;
	#title;
	#count;
	#begin;
	#seen;
	#skipped;

	// `list` is an <ol>; `title` says how many packets there were.
	constructor(list, title) {
		this.#list = list;
		this.#title = title;
		this.clear();
	}

	clear() {
		this.#list.replaceChildren();
		this.#count = 0;
		this.#seen = new Set();
		this.#skipped = undefined;
		this.#title.textContent = 'No packets yet';
	}

	// A frame that `side`, server or client, has sent.
	add(side, frame) {
		const packet = decode(frame);

		if (!packet)
			return;
		if (!this.#count++)
			this.#begin = performance.now();
		const { name, psn, what } = packet, seen = `${side} ${name} ${psn} ${what}`;
		const row = document.createElement('li');
		const part = (kind, words) => {
			const made = document.createElement('span');

			made.className = kind;
			made.textContent = words;
			row.append(made, ' ');
		};

		row.className = side;
		part('ms', (performance.now() - this.#begin).toFixed(1));
		part('hidden', `from the ${side}:`);
		part('name', name);
		part('psn', psn);
		part('what', this.#seen.has(seen) ? `${what}, again` : what);
		this.#seen.add(seen);
		// What comes again comes soon, so the oldest may be forgotten.
		if (this.#seen.size > 10000)
			this.#seen.delete(this.#seen.values().next().value);
		this.#list.append(row);
		this.#title.textContent = `${this.#count} packet${this.#count === 1 ? '' : 's'}`;
		this.#shorten();
	}

	#shorten() {
		if (this.#count <= first + last)
			return;
		if (!this.#skipped) {
			this.#skipped = document.createElement('li');
			this.#list.children[first].before(this.#skipped);
		}
		this.#skipped.nextSibling.remove();
		this.#skipped.textContent = `${this.#count - first - last} not shown`;
	}
}
