import { describe, expect, it } from 'vitest';
import { errorOf } from './api';

describe('errors of the node', () => {
  const cases: [string, number, string, string][] = [
    ['a form', 400, '{"errors":{"name":"taken","_":"no"}}', 'name: taken; no'],
    ['views', 404, '{"error":"not_found","reason":"missing"}', 'missing'],
    ['queries', 400, '{"errors":[{"code":3000,"msg":"syntax error - line 1, column 8"}]}', 'syntax error - line 1, column 8 (3000)'],
    ['functions', 422, '{"name":"ERR","code":1,"description":"bad","runtime_info":{"info":"why"}}', 'bad: why'],
    ['rights', 403, '{"message":"Forbidden","permissions":["ReadData"]}', 'Forbidden: ReadData'],
    ['search', 400, '{"status":"fail","error":"index not found","request":{}}', 'index not found'],
    ['search, as an object', 412, '{"status":"fail","error":{"status":"late"}}', '{"status":"late"}'],
    ['a reference', 400, '{"hostname":"no port","_":"no"}', 'hostname: no port; no'],
    ['the HTTP API', 400, '{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid","detail":"ttl: seconds, 1 to 5"}', 'ttl: seconds, 1 to 5'],
    ['rights of the HTTP API', 403, '{"title":"Forbidden","status":403,"code":"forbidden","detail":"Forbidden","permissions":["ReadStats"]}', 'Forbidden: ReadStats'],
    ['a list', 400, '["one","two"]', 'one; two'],
    ['a text', 404, '"Unknown user."', 'Unknown user.'],
    ['plain text', 500, 'broken', 'broken'],
    ['nothing', 502, '', 'the node has answered with status 502'],
    ['flush', 400, '{"_":"flush is disabled"}', 'flush is disabled'],
    ['markup', 400, '{"reason":"<img src=x onerror=alert(1)>"}', '<img src=x onerror=alert(1)>'],
  ];
  it.each(cases)('%s', (_, status, body, title) => {
    expect(errorOf(status, body).title).toBe(title);
  });
  it('has fields, permissions and places', () => {
    expect(errorOf(400, '{"errors":{"name":"taken"}}').fields).toEqual({ name: 'taken' });
    expect(errorOf(403, '{"message":"F","permissions":["ReadData"]}').permissions).toEqual(['ReadData']);
    expect(errorOf(403, '{"status":403,"detail":"F","permissions":["ReadStats"]}').permissions).toEqual(['ReadStats']);
    expect(errorOf(400, '{"errors":[{"code":3000,"msg":"x line 2, column 8"}]}').at).toEqual({ line: 2, column: 8 });
  });
});
