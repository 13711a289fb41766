# make book: one HTML file, as Chromium sees it. Runs on the machine.

load helpers

setup_file() {
	export dir=$BATS_FILE_TMPDIR
	local root=$BATS_TEST_DIRNAME/..
	timeout 500 "$root/docs/book/make-book" "$dir/book.html" 3>&-

	# The book in a frame as wide as a phone, with somebody who looks at it.
	cat >"$dir/look.html" <<-'END'
		<!DOCTYPE html>
		<iframe src="book.html" width="390" height="844"></iframe>
		<pre></pre>
		<script>
		const frame = document.querySelector('iframe'), say = [];
		frame.onload = () => {
			const page = frame.contentDocument, all = query => [...page.querySelectorAll(query)];
			const root = page.documentElement;
			say.push(`too-wide ${root.scrollWidth - root.clientWidth}`);
			say.push(`scripts ${page.scripts.length}`);
			say.push(`chapters ${all('nav > ul > li').length}`);
			for (const diagram of all('.diagram')) {
				const box = diagram.querySelector('svg').getBoundingClientRect();
				say.push(`diagram ${box.width > 100 && box.height > 50 &&
					diagram.querySelectorAll('text').length > 1}`);
			}
			for (const figure of all('pre.text'))
				if (/machine A/.test(figure.textContent))
					say.push(`drawing ${figure.scrollWidth <= figure.clientWidth}`);
			for (const link of all('a[href^="#"]'))
				if (!page.getElementById(decodeURIComponent(link.hash.slice(1))))
					say.push(`nowhere ${link.hash}`);
			for (const link of all('a:not([href^="#"])'))
				if (!/^https?:/.test(link.getAttribute('href')))
					say.push(`outside ${link.getAttribute('href')}`);
			for (const part of all('[src], link, object, image, use'))
				say.push(`fetches ${part.outerHTML.slice(0, 60)}`);
			const ids = all('[id]').map(part => part.id);
			for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) != i)))
				say.push(`twice ${id}`);
			document.querySelector('pre').textContent = say.join('\n');
		};
		</script>
	END
	local browser
	browser=$(type -P chromium || type -P chromium-browser)
	timeout 60 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr \
		--allow-file-access-from-files --virtual-time-budget=10000 \
		--dump-dom "file://$dir/look.html" >"$dir/dom" 2>"$dir/log" 3>&-
	sed -n '/<pre>/,/<\/pre>/p' "$dir/dom" | sed 's/.*<pre>//; s/<\/pre>.*//' >"$dir/seen"
}

# What was seen of $1.
seen() { sed -n "s/^$1 //p" "$dir/seen"; }

texts() { printf '%s\n' "$project"/README.md "$project"/[0-9][0-9]-*/README.md "$project"/docs/*.md; }

@test "book: no error in Chromium's log, no script, nothing fetched" {
	assert_equal "$(grep -E 'CONSOLE|ERR_' "$dir/log")" ""
	assert_equal "$(seen scripts)" 0
	assert_equal "$(seen fetches)" ""
}

@test "book: every text is in it, and every source" {
	local file
	# The sources are one chapter more.
	assert_equal "$(seen chapters)" $(($(texts | xargs ls 2>/dev/null | wc -l) + 1))
	cd "$project"
	for file in [0-9][0-9]-*/*.[ch] common/*.[ch]; do
		grep -q "<code>$file</code></h2>" "$dir/book.html" || fail "not there: $file"
	done
}

@test "book: every link inside it lands, every id is there once" {
	assert_equal "$(seen nowhere)" ""
	assert_equal "$(seen outside)" ""
	assert_equal "$(seen twice)" ""
	(($(grep -o 'href="#' "$dir/book.html" | wc -l) > 100))
}

@test "book: every diagram is drawn" {
	run -0 seen diagram
	assert_equal "$output" "$(texts | xargs cat 2>/dev/null | sed -n 's/^```mermaid$/true/p')"
}

@test "book: on a phone the page does not scroll sideways" {
	assert_equal "$(seen too-wide)" 0
}

@test "book: on a phone the drawing of both machines is seen whole, in each chapter" {
	run -0 seen drawing
	assert_equal "$output" "$(grep -h '^<!-- overview -->$' "$project"/*/README.md |
		sed 's/.*/true/')"
}

@test "book: made again, it is the same, and nothing is drawn or fetched" {
	LIMIT=120 run -0 limited "$project/docs/book/make-book" "$dir/again.html"
	assert_output "  BOOK  $dir/again.html"
	cmp "$dir/book.html" "$dir/again.html"
}
