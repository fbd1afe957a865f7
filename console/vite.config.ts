import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// Where the node is that `npm run dev` passes requests on to.
const node = process.env.NACRE_URL ?? 'http://127.0.0.1:8091';
const paths = ['/pools', '/settings', '/_p', '/_nacre', '/couchBase', '/uilogin', '/uilogout', '/whoami', '/logs', '/events', '/deployments', '/plugins', '/controller', '/node', '/nodes', '/indexStatus', '/clusterInit', '/versions', '/nodeStatuses'];

export default defineConfig({
  plugins: [svelte()],
  // Relative, so that the console works below any prefix of a proxy.
  base: './',
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 800,
  },
  server: { proxy: Object.fromEntries(paths.map((path) => [path, { target: node, changeOrigin: false }])) },
  test: { include: ['src/**/*.test.ts'] },
});
