// The cases of conformance/cases/couch, against nacre and against express-pouchdb, an independent server.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import express from 'express';
import expressPouch from 'express-pouchdb';
import PouchDB from 'pouchdb';
import memory from 'pouchdb-adapter-memory';
import { files, play } from './cases.mjs';
import { PASSWORD, Server, USER } from './server.mjs';

PouchDB.plugin(memory);

const CASES_MIN = 250;
let server;
let other;

before(async () => {
  server = await Server.start();
  const app = express();
  const options = { mode: 'minimumForPouchDB', overrideMode: { include: ['routes/find'] }, inMemoryConfig: true, logPath: '/dev/null' };
  app.use('/', expressPouch(PouchDB.defaults({ adapter: 'memory' }), options));
  other = await new Promise((resolve) => {
    const listening = app.listen(0, '127.0.0.1', () => resolve(listening));
  });
});
after(async () => {
  other?.closeAllConnections();
  other?.close();
  await server?.close();
});

const all = await files();

test('there are as many cases as there should be', () => {
  const count = all.reduce((sum, { cases }) => sum + cases.length, 0);
  assert.ok(count >= CASES_MIN, `${count} cases`);
});

for (const { name, cases } of all) {
  test(`nacre answers as the cases of ${name} say`, async (t) => {
    await server.deploy(name);
    const url = `${server.url}/_plugin/${name}/${name}`;
    const login = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}`;
    await played(t, cases, url, login, (step) => step.expect);
  });
  test(`express-pouchdb answers as the cases of ${name} say`, async (t) => {
    const url = `http://127.0.0.1:${other.address().port}/${name}`;
    await fetch(url, { method: 'PUT' });
    await played(t, cases, url, undefined, (step) => step.oracle ?? step.expect);
  });
}

async function played(t, cases, url, login, expected) {
  const answers = {};
  for (const { name, steps } of cases) {
    await t.test(name, async () => {
      for (const step of steps) {
        const answer = await play(step, url, answers, login);
        assert.deepEqual(answer, expected(step), `${step.request} ${JSON.stringify(step.body ?? '')}`);
      }
    });
  }
}
