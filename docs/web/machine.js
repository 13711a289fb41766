// machine.js - the emulated machine, for v86
//
// state.mjs saves its state, and worker.js goes on with that state. v86 can do that only
// if both have the same memory and the same devices, so both take them from here.
export const machine = {
	memory_size: 128 << 20,
	vga_memory_size: 1 << 20,
	uart1: true,
	// eth0 of the guest: see guest/init.
	net_device: { type: 'virtio' },
	filesystem: {},
	disable_keyboard: true,
	disable_mouse: true,
	disable_speaker: true,
	autostart: true,
};
