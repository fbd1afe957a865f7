// Keeps the files of the page, so that it opens without a network.

const CACHE = 'todo-1';
const FILES = ['/', '/todo.js', '/pouchdb.min.js'];

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  if (!FILES.includes(new URL(event.request.url).pathname)) return;
  // The newest version when there is a network.
  event.respondWith(fetch(event.request).catch(() => caches.match(event.request)));
});
