import { expect, it } from 'vitest';
import { commandsOf, shell } from './data';

it('makes one word of any text', () => {
  expect(['travel', 'a b', "it's", '$(rm -rf /)', '', 'http://h:8091'].map(shell)).toEqual(['travel', "'a b'", "'it'\\''s'", "'$(rm -rf /)'", "''", 'http://h:8091']);
});

it('says what to run for what was chosen', () => {
  const choices = { server: 'http://h:8091', user: 'ann', repository: '', buckets: ['a', 'b;c'], passphrase: true, keep: 7 };
  const commands = commandsOf(choices).map(({ command }) => command);
  expect(commands[0]).toBe("nacre backup create backups --bucket a --bucket 'b;c' --server http://h:8091 --user ann --passphrase-file secret.txt");
  expect(commands.at(-1)).toBe('nacre backup prune backups --keep-last 7 --passphrase-file secret.txt');
  expect(commandsOf({ ...choices, buckets: [], passphrase: false })[0]?.command).toBe('nacre backup create backups --server http://h:8091 --user ann');
});
