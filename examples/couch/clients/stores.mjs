// PouchDB and RxDB as the tests use them: in memory, and through restarts of the server.

import PouchDB from 'pouchdb';
import memory from 'pouchdb-adapter-memory';
import { createRxDatabase } from 'rxdb';
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import { getFetchWithCouchDBAuthorization, replicateCouchDB } from 'rxdb/plugins/replication-couchdb';
import { PASSWORD, USER } from './server.mjs';

PouchDB.plugin(memory);
export { PouchDB };

let number = 0;

/** A promise whose rejection is never unhandled. */
class Quiet extends Promise {
  static get [Symbol.species]() {
    return Promise;
  }

  then(fulfilled, rejected) {
    const next = super.then(fulfilled, rejected);
    next.catch(() => {});
    return next;
  }
}

/**
 * Returns a database for live sync. After each batch PouchDB requests the `info` of the source, and does not handle its failure:
 * without a server this would be an unhandled rejection, which ends the process.
 */
export function restarted(url) {
  const database = new PouchDB(url);
  const info = database.info.bind(database);
  database.info = () => Quiet.resolve(info());
  return database;
}

/** Returns a new database in memory. */
export const local = () => new PouchDB(`local-${number++}`, { adapter: 'memory' });
export const numbers = (count, prefix) =>
  Array.from({ length: count }, (_, index) => ({ _id: `${prefix}${String(index).padStart(4, '0')}`, index }));

/** Returns the IDs and revisions of all leaves, as a text that is equal for equal leaves. */
export async function leaves(database) {
  const { results } = await database.changes({ style: 'all_docs', batch_size: 1000 });
  const row = ({ id, changes, deleted }) => `${id} ${deleted ?? false} ${changes.map(({ rev }) => rev).sort()}`;
  return results.map(row).sort().join('\n');
}

/** The schema of RxDB's documents. */
export const schema = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: { id: { type: 'string', maxLength: 100 }, n: { type: 'number' }, by: { type: 'string' } },
  required: ['id'],
};

/** Rejects on errors of the server, which RxDB would read as changes. */
function rejecting(fetch) {
  return async (url, request) => {
    const response = await fetch(url, request);
    if (response.status >= 400) throw new Error(`${response.status} ${await response.text()}`);
    return response;
  };
}

/** Returns a database of RxDB in live sync with the database at `url`. */
export async function rx(name, url) {
  const database = await createRxDatabase({ name, storage: getRxStorageMemory(), multiInstance: false });
  const { items } = await database.addCollections({ items: { schema } });
  const bare = url.replace(/\/\/.*@/, '//');
  const replication = replicateCouchDB({
    replicationIdentifier: name,
    collection: items,
    url: `${bare}/`,
    live: true,
    retryTime: 200,
    waitForLeadership: false,
    fetch: rejecting(getFetchWithCouchDBAuthorization(USER, PASSWORD)),
    pull: { batchSize: 200 },
    push: { batchSize: 200 },
  });
  return { database, items, replication };
}
