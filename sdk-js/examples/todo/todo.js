// The list in the browser: it shows what `live` gives, and changes documents. Whoever changes them, every page shows it.

import { applyChanges, connect } from './nacre/web.js'

const { bucket } = await (await fetch('/setting')).json()
const cluster = connect(location.origin, { services: { query: location.origin, views: location.origin } })
const documents = cluster.bucket(bucket).defaultCollection()

const [form, list, status] = ['form', 'ul', '[role=status]'].map((selector) => document.querySelector(selector))

/** Makes an element. */
function element(name, members, ...children) {
  const made = Object.assign(document.createElement(name), members)
  made.append(...children)
  return made
}

/** Does something to the database; the status says what failed. */
async function attempt(work) {
  status.textContent = ''
  await work().catch((error) => (status.textContent = error.message))
}

/** Changes an item that others may change at the same time. */
async function change(id, edit) {
  for (;;) {
    const { content, cas } = await documents.get(id)
    try {
      return await documents.replace(id, edit(content), { cas })
    } catch (error) {
      if (error.name !== 'CasMismatchError') throw error
    }
  }
}

function row({ id, text, done }) {
  const box = element('input', { type: 'checkbox', checked: done })
  box.onchange = () => attempt(() => change(id, (item) => ({ ...item, done: box.checked })))
  const remove = element('button', { type: 'button', textContent: 'Remove', ariaLabel: `Remove ${text}` })
  remove.onclick = () => attempt(() => documents.remove(id))
  return element('li', { className: done ? 'done' : '' }, element('label', {}, box, ' ', text), remove)
}

form.onsubmit = (event) => {
  event.preventDefault()
  const text = form.elements.text.value
  form.reset()
  const item = { type: 'todo', text, done: false, created: Date.now() }
  attempt(() => documents.insert(`todo:${crypto.randomUUID()}`, item))
}

const statement = `SELECT META(t).id, t.text, t.done FROM \`${bucket}\` AS t WHERE t.type = 'todo' ORDER BY t.created, META(t).id`
let rows = []
for await (const { changes } of cluster.live(statement)) {
  // Rows that stay keep their elements, so that nobody loses the focus.
  rows = applyChanges(rows, changes.map((splice) => ({ ...splice, added: splice.added.map(row) })))
  for (const [index, made] of rows.entries()) {
    if (list.children[index] !== made) list.insertBefore(made, list.children[index] ?? null)
  }
  while (list.children.length > rows.length) list.lastElementChild.remove()
  list.dataset.count = rows.length
}
