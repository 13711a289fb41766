-- book.lua - a pandoc filter that makes one document of the workbook's texts
--
-- Metadata: `texts`, the Markdown files in their order; `sources`, the programs that
-- follow them; `mermaid`, the folder with Mermaid and with what it has drawn.
--
-- A heading `#gids` of docs/gid.md becomes `#docs-gid--gids`, the file itself
-- `#docs-gid`, and links follow. A link to any other file of the project brings that
-- file into the book.

local stringify = pandoc.utils.stringify
local STYLE = 'docs/book/mermaid.json'

local function read(file)
	local handle = assert(io.open(file))
	local text = handle:read('a')

	handle:close()
	return text
end

local function exists(file)
	local handle = io.open(file)
	local is_file = handle and handle:read(0) ~= nil

	if handle then
		handle:close()
	end
	return is_file
end

-- 05-pingpong/README.md and 05-pingpong/ are both 05-pingpong.
local function id_of(file)
	local id = file:gsub('/README%.md$', ''):gsub('%.md$', ''):gsub('/$', '')

	return id:gsub('[/.]', '-'):lower()
end

-- The path that `target` means in a text of `folder`, from the project's root.
local function resolve(folder, target)
	local parts = {}

	for part in (folder .. target):gmatch('[^/]+') do
		if part == '..' then
			table.remove(parts)
		elseif part ~= '.' then
			table.insert(parts, part)
		end
	end
	return table.concat(parts, '/')
end

-- Gives headings and links of one text their names in the book.
local function adopt(text, in_book, sources)
	local folder = text:match('^.*/') or ''
	local names = {}

	function names.Header(header)
		header.identifier = id_of(text) ..
			(header.level > 1 and '--' .. header.identifier or '')
		return header
	end

	function names.Link(link)
		local target, anchor = link.target:match('^([^#]*)#?(.*)$')
		local file

		if link.target:match('^%a+:') then
			return nil
		end
		file = target == '' and text or resolve(folder, target)
		if in_book[file .. '/README.md'] then
			file = file .. '/README.md'
		end
		if not in_book[file] then
			if not exists(file) then
				-- A folder, or what only the project has.
				return pandoc.Span(link.content)
			end
			in_book[file] = true
			table.insert(sources, file)
		end
		link.target = '#' .. id_of(file) .. (anchor ~= '' and '--' .. anchor or '')
		return link
	end

	-- A name like `make run-05` is not to be broken at its hyphen.
	function names.Code(code)
		if #code.text <= 28 then
			code.classes:insert('short')
		end
		return code
	end

	-- Comments are for those who edit the text.
	function names.RawBlock(raw)
		return raw.text:match('^<!%-%-') and {} or nil
	end

	return pandoc.Div(pandoc.read(read(text), 'gfm').blocks):walk(names).content
end

local function is_diagram(block)
	return block.classes:includes('mermaid')
end

-- Where the drawing of a diagram is kept; another style makes it another.
local function drawing(mermaid, block)
	return ('%s/%s.svg'):format(mermaid, pandoc.utils.sha1(read(STYLE) .. block.text))
end

-- Draws those of the diagrams that weren't drawn before, all at once.
local function draw(mermaid, blocks)
	local new, text, input = {}, {}, mermaid .. '/new.md'

	pandoc.Div(blocks):walk({CodeBlock = function(block)
		if is_diagram(block) and not exists(drawing(mermaid, block)) then
			table.insert(new, drawing(mermaid, block))
			table.insert(text, '```mermaid\n' .. block.text .. '\n```\n')
		end
	end})
	if #new == 0 then
		return
	end

	io.stderr:write(('  DRAW  %d diagrams\n'):format(#new))
	local handle = assert(io.open(input, 'w'))
	handle:write(table.concat(text, '\n'))
	handle:close()
	-- What Chromium shows here is our own; its sandbox often can't be had in a container.
	handle = assert(io.open(mermaid .. '/browser.json', 'w'))
	handle:write(('{"executablePath": "%s", "args": ["--no-sandbox"]}\n'):format(
		os.getenv('CHROMIUM')))
	handle:close()
	pandoc.pipe(mermaid .. '/node_modules/.bin/mmdc', {
		'--quiet', '--puppeteerConfigFile', mermaid .. '/browser.json',
		'--configFile', STYLE, '--backgroundColor', 'transparent',
		'--input', input, '--output', mermaid .. '/drawn.md'}, '')
	for i, file in ipairs(new) do
		assert(os.rename(('%s/drawn-%d.svg'):format(mermaid, i), file))
	end
end

-- A drawing as a part of the page: its names, which every other has too, begin with
-- `prefix`; on a narrow screen it shrinks to what can still be read, and no further.
local function inline(svg, prefix)
	return (svg:gsub(' id="', ' id="' .. prefix)
		:gsub('url%(#', 'url(#' .. prefix)
		:gsub('href="#', 'href="#' .. prefix)
		:gsub('#my%-svg #', '#my-svg #' .. prefix)
		:gsub('#my%-svg', '#' .. prefix .. 'my-svg')
		:gsub('max%-width: ([%d.]+)px;', function(width)
			return ('max-width: %spx; min-width: %dpx;'):format(width, width * 3 // 4)
		end, 1))
end

function Pandoc(doc)
	local mermaid = stringify(doc.meta.mermaid)
	local blocks, sources, in_book = pandoc.List(), {}, {}

	for file in stringify(doc.meta.texts):gmatch('%S+') do
		in_book[file] = true
	end
	for file in stringify(doc.meta.sources):gmatch('%S+') do
		in_book[file] = true
		table.insert(sources, file)
	end

	for text in stringify(doc.meta.texts):gmatch('%S+') do
		blocks:extend(adopt(text, in_book, sources))
	end
	doc.meta.title = doc.meta.title or stringify(blocks[1])

	draw(mermaid, blocks)
	local drawn = 0
	blocks = pandoc.Div(blocks):walk({CodeBlock = function(block)
		if is_diagram(block) then
			drawn = drawn + 1
			return pandoc.RawBlock('html', '<figure class="diagram">' ..
				inline(read(drawing(mermaid, block)), 'diagram-' .. drawn .. '-') ..
				'</figure>')
		end
	end}).content

	blocks:insert(pandoc.Header(1, 'Sources', pandoc.Attr('sources')))
	for _, file in ipairs(sources) do
		local language = file:match('%.[ch]$') and 'c' or
			file:match('Makefile$') and 'makefile' or
			read(file):match('^#!.-bash') and 'bash' or 'text'

		blocks:insert(pandoc.Header(2, pandoc.Code(file), pandoc.Attr(id_of(file))))
		blocks:insert(pandoc.CodeBlock(read(file), pandoc.Attr('', {language})))
	end

	doc.meta.style = pandoc.MetaBlocks({pandoc.RawBlock('html', read('docs/book/style.css'))})
	doc.blocks = blocks
	return doc
end
