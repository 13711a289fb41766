// serve.mjs - shows a folder on localhost, as a static web server does: gzipped, if the
// browser takes that, except for what is compressed already
//
// Usage: node serve.mjs FOLDER [PORT]
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript',
	'.mjs': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm',
	'.txt': 'text/plain; charset=utf-8' };

export function serve(folder, port) {
	const server = createServer(async (request, answer) => {
		try {
			const path = normalize(decodeURIComponent(new URL(request.url, 'http://x').pathname));
			const file = path.endsWith('/') ? `${path}index.html` : path;
			const type = types[extname(file)];
			const is_packed = type && /\bgzip\b/.test(request.headers['accept-encoding']);
			let bytes = await readFile(join(folder, file));

			if (is_packed)
				bytes = gzipSync(bytes);
			// What has a hash in its address never changes.
			answer.writeHead(200, { 'Content-Length': bytes.length,
				'Cache-Control': request.url.includes('?') ? 'max-age=31536000, immutable' :
					'no-cache',
				'Content-Type': type ?? 'application/octet-stream',
				...is_packed && { 'Content-Encoding': 'gzip' } });
			answer.end(bytes);
		} catch {
			answer.writeHead(404).end('not found\n');
		}
	});

	return new Promise((resolve, reject) => {
		server.on('error', reject);
		server.listen(port, '127.0.0.1', () => resolve(server));
	});
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
	const [folder, port = '8000'] = process.argv.slice(2);

	await serve(folder, +port).catch(error => {
		console.error(`serve: port ${port}: ${error.code}; choose another one: make serve-web PORT=8080`);
		process.exit(1);
	});
	console.log(`the workbook: http://localhost:${port}/ (Ctrl-C ends this)`);
}
