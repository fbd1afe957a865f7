// Prints how large the package is, minified and compressed, beside what an application pays that bundles it.

import { gzipSync } from 'node:zlib'

import { build } from 'esbuild'

const { outputFiles } = await build({
  entryPoints: [new URL('../dist/src/index.js', import.meta.url).pathname],
  bundle: true,
  minify: true,
  platform: 'node',
  format: 'esm',
  write: false,
})
const [{ contents }] = outputFiles
console.log(JSON.stringify({ minified: contents.length, gzip: gzipSync(contents, { level: 9 }).length }))
