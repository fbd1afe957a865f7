// A to-do list that works without a network. The page reads and writes its own database, and never waits for the server.
/* global PouchDB */

const todos = new PouchDB('todos');
const list = document.querySelector('ul');
const status = document.querySelector('[role=status]');

let shown = Promise.resolve();

/** Shows the items again, after what is being shown: the last change wins. */
const refresh = () => (shown = shown.then(show));

/** Shows the items in the order of their creation. */
async function show() {
  const { rows } = await todos.allDocs({ include_docs: true, conflicts: true });
  await Promise.all(rows.filter(({ doc }) => doc._conflicts).map(({ doc }) => settle(doc)));
  list.replaceChildren(...rows.map(({ doc }) => row(doc)));
  list.dataset.count = rows.length;
}

function row(doc) {
  const item = document.createElement('li');
  const label = document.createElement('label');
  const box = document.createElement('input');
  const remove = document.createElement('button');
  box.type = 'checkbox';
  box.checked = doc.done;
  box.onchange = () => change(doc._id, (item) => ({ ...item, done: box.checked }));
  remove.textContent = 'Delete';
  remove.onclick = () => change(doc._id, (item) => ({ ...item, _deleted: true }));
  item.className = doc.done ? 'done' : '';
  label.append(box, ` ${doc.text}`);
  item.append(label, ' ', remove);
  return item;
}

/** Writes the current revision again with a change; another tab or sync may write at the same time. */
async function change(id, edit) {
  for (;;) {
    try {
      return await todos.put({ ...edit(await todos.get(id)), changed: new Date().toISOString() });
    } catch (error) {
      if (error.name === 'not_found') return;
      if (error.name !== 'conflict') throw error;
    }
  }
}

/**
 * Merges revisions that two devices have written without a network: an item is done if it is done on one device. Devices see the
 * same winner and write the same content, so they write the same revision.
 */
async function settle({ _conflicts, ...winner }) {
  const losers = await Promise.all(_conflicts.map((rev) => todos.get(winner._id, { rev })));
  const done = winner.done || losers.some((loser) => loser.done);
  try {
    if (done !== winner.done) await todos.put({ ...winner, done });
    for (const { _id, _rev } of losers) await todos.remove(_id, _rev);
  } catch (error) {
    // Another tab or sync was faster. Its change shows the items again.
    if (error.name !== 'conflict') throw error;
  }
}

document.querySelector('form').onsubmit = async (event) => {
  event.preventDefault();
  const input = event.target.elements.text;
  const _id = `${new Date().toISOString()} ${crypto.randomUUID()}`;
  await todos.put({ _id, text: input.value, done: false });
  input.value = '';
};

todos.changes({ since: 'now', live: true }).on('change', refresh);
const sync = todos.sync(`${location.origin}/db/todos`, {
  live: true,
  retry: true,
  back_off_function: (pause) => Math.min(pause * 2 || 250, 5000),
});

/** The states of both directions, each of which tries again by itself. */
const states = { push: 'syncing', pull: 'syncing' };
function note(way, state) {
  states[way] = state;
  const found = Object.values(states);
  status.textContent = ['offline', 'syncing'].find((each) => found.includes(each)) ?? 'in step';
}
for (const way of ['push', 'pull']) {
  sync[way].on('active', () => note(way, 'syncing')).on('paused', (error) => note(way, error ? 'offline' : 'in step'));
}
sync.on('denied', () => (status.textContent = 'the server refuses a change'));
sync.on('error', (error) => (status.textContent = `sync has stopped: ${error.message ?? error.reason}`));
await refresh();

// The page itself comes from a cache when there is no network.
await navigator.serviceWorker.register('/worker.js');
