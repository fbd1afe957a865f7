import { expect, it } from 'vitest';
import { designName, parametersOf, previewOf, withView } from './data';

const query = { stale: 'false', limit: '50', key: '', startkey: '', endkey: '', group_level: '', reduce: true, descending: false };

it('sends what was typed as JSON', () => {
  expect(parametersOf({ ...query, key: 'ann' }, false)).toBe('stale=false&key=%22ann%22&limit=50');
  expect(parametersOf({ ...query, startkey: '[1]', endkey: '"z"', descending: true }, false)).toBe('stale=false&startkey=%5B1%5D&endkey=%22z%22&descending=true&limit=50');
});

it('limits rows and groups reductions', () => {
  expect(parametersOf({ ...query, group_level: '1' }, true)).toBe('stale=false&reduce=true&group_level=1');
  expect(parametersOf({ ...query, reduce: false }, true)).toBe('stale=false&reduce=false&limit=50');
  expect(designName({ doc: { meta: { id: '_design/dev_a' }, json: {} } })).toBe('dev_a');
});

it('changes one view of a design document and asks for its preview', () => {
  const design = { collection: 's.c', views: { a: { map: 'm', reduce: '_sum' }, b: { map: 'n' } } };
  expect(withView(design, 'a', 'x', ' ')).toEqual({ collection: 's.c', views: { a: { map: 'x' }, b: { map: 'n' } } });
  expect(withView(design, 'b', 'n', '_count\n').views?.b).toEqual({ map: 'n', reduce: '_count' });
  expect(previewOf(design, 'a', ' x, y', '2')).toEqual({ design, view: 'a', documents: ['x', 'y'], group_level: 2 });
  expect(previewOf(design, 'a', '', 'all')).toEqual({ design, view: 'a' });
});
