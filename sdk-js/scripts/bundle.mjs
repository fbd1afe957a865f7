// Joins the compiled modules into the few files that are published, in dist/lib: a program loads them in half the time that
// the modules take. What is loaded when it is used has files of its own.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { build } from 'esbuild'

const folder = new URL('../dist/lib', import.meta.url).pathname
const compiled = (name) => new URL(`../dist/src/${name}.js`, import.meta.url).pathname

const { outputFiles } = await build({
  entryPoints: ['index', 'web', 'embedded', 'device-sync'].map(compiled),
  outdir: folder,
  bundle: true,
  splitting: true,
  write: false,
  format: 'esm',
  platform: 'node',
  target: 'es2023',
  logLevel: 'warning',
})

mkdirSync(folder, { recursive: true })
// Node.js looks for the type of each file, and finds it in the first folder.
writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: 'module', sideEffects: false }))
for (const { path, text } of outputFiles) {
  // An import without names is for effects, which no module has. Bundlers would warn about it.
  writeFileSync(path, text.replace(/^import "\.\/[\w-]+\.js";\n/gm, ''))
}
