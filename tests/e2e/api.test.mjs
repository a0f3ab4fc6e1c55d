// Every operation of api/openapi.yaml against the real server: status and body as described, and what is refused.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { Space, events, request, until, websocket } from './lib/space.mjs';
import { Contract } from './lib/schema.mjs';

const nobody = 'saaaaaaaaaaaaaaaaaaaa';
let space, contract, sandbox;

before(async () => {
  space = await Space.start();
  contract = new Contract(JSON.parse((await space.call('GET', '/openapi.json')).text));
  sandbox = await space.create({ name: 'main', metadata: { suite: 'api' }, env: { FROM_SANDBOX: 'yes' } });
});
after(() => space.stop());

const s = (tail = '', id = sandbox.id) => `/v1/sandboxes/${id}${tail}`;
const ask = async (operation, status, method, target, options) =>
  contract.check(operation, await space.call(method, target, options), status);

describe('platform', () => {
  test('health, readiness, description, page, problems', async () => {
    await ask('getHealth', 200, 'GET', '/healthz', { key: null });
    await ask('getReadiness', 200, 'GET', '/readyz', { key: null });
    await ask('getOpenApi', 200, 'GET', '/openapi.json', { key: null });
    const docs = await space.call('GET', '/docs', { key: null });
    contract.check('getDocs', docs, 200);
    assert.match(docs.text, /not_found/);
    const problem = await space.call('GET', '/problems/not_found', { key: null });
    contract.check('getProblem', problem, 302);
    assert.equal(problem.headers.location, '/docs#problem-not_found');
  });

  test('node and figures', async () => {
    const node = await ask('getNode', 200, 'GET', '/v1/node');
    assert.match(node.qemu_version, /^\d+\.\d+/);
    const metrics = await space.call('GET', '/metrics');
    contract.check('getMetrics', metrics, 200);
    for (const name of ['process_resident_memory_bytes', 'process_open_fds', 'space_sandboxes{state="running"}',
      'space_create_seconds_count', 'space_http_requests_total{class="2xx"}', 'space_loop_lag_seconds_bucket'])
      assert.ok(metrics.text.includes(`\n${name}`), name);
    assert.ok(Number(/^process_open_fds (\d+)/m.exec(metrics.text)[1]) > 5);
    for (const line of metrics.text.trimEnd().split('\n'))
      assert.match(line, /^(#|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+$)/);
  });

  test('no key, wrong key, wrong scope, wrong method, wrong path', async () => {
    await ask('listSandboxes', 401, 'GET', '/v1/sandboxes', { key: null });
    await ask('listSandboxes', 401, 'GET', '/v1/sandboxes', { key: `sk_space_${'0'.repeat(40)}` });
    await ask('getNode', 401, 'GET', '/v1/node', { key: 'rubbish' });
    const method = await space.call('PUT', '/v1/sandboxes');
    assert.equal(method.status, 405);
    assert.match(method.headers.allow, /POST/);
    assert.equal((await space.call('GET', '/v1/nothing')).json.code, 'not_found');
  });
});

describe('sandboxes', () => {
  test('create answers 202 and an operation, which can be waited for', async () => {
    const answer = await space.call('POST', '/v1/sandboxes', { body: {} });
    const { operation, sandbox: made } = contract.check('createSandbox', answer, 202);
    assert.equal(answer.headers.location, `/v1/operations/${operation.id}`);
    const done = await ask('getOperation', 200, 'GET', `/v1/operations/${operation.id}?wait=60s`);
    assert.equal(done.state, 'succeeded');
    assert.equal((await space.get(made.id)).state, 'running');
    await space.remove(made.id);
  });

  test('create that waits answers 201', async () => {
    const answer = await space.call('POST', '/v1/sandboxes', { body: { name: 'wait' }, headers: { prefer: 'wait=60' } });
    const { sandbox: made } = contract.check('createSandbox', answer, 201);
    assert.equal(answer.headers['preference-applied'], 'wait=60');
    assert.equal(answer.headers.location, `/v1/sandboxes/${made.id}`);
    assert.equal(made.state, 'running');
    assert.equal((await space.run(made.id, 'hostname')).stdout.trim(), made.id);
    await space.remove(made.id);
  });

  test('every fault of a body is named', async () => {
    const problem = await ask('createSandbox', 400, 'POST', '/v1/sandboxes',
      { body: { nmae: 'x', shape: { vcpus: 99 }, timeout: 'soon', env: { 'A B': '1' }, template: 7 } });
    assert.deepEqual(problem.errors.map((e) => e.field).sort(), ['/env', '/nmae', '/shape/vcpus', '/template', '/timeout']);
    await ask('createSandbox', 400, 'POST', '/v1/sandboxes', { body: '{"a":' , headers: { 'content-type': 'application/json' } });
    await ask('createSandbox', 400, 'POST', '/v1/sandboxes', { body: { timeout: '30s', timeout_ms: 30000 } });
    await ask('createSandbox', 404, 'POST', '/v1/sandboxes', { body: { template: 'nosuch' } });
    await ask('createSandbox', 400, 'POST', '/v1/sandboxes?wat=1', { body: {} });
  });

  test('get, list with filters and pages, change', async () => {
    assert.equal((await ask('getSandbox', 200, 'GET', s())).name, 'main');
    await ask('getSandbox', 404, 'GET', s('', nobody));
    await ask('getSandbox', 404, 'GET', s('', 'nonsense'));
    const found = await ask('listSandboxes', 200, 'GET', '/v1/sandboxes?metadata.suite=api&state=running,paused&name=main');
    assert.deepEqual(found.items.map((i) => i.id), [sandbox.id]);
    assert.equal((await ask('listSandboxes', 200, 'GET', '/v1/sandboxes?metadata.suite=other')).items.length, 0);
    await ask('listSandboxes', 400, 'GET', '/v1/sandboxes?state=sleeping');
    await ask('listSandboxes', 400, 'GET', '/v1/sandboxes?cursor=rubbish');
    const changed = await ask('updateSandbox', 200, 'PATCH', s(), { body: { timeout: '1h', metadata: { step: '3', suite: null } } });
    assert.deepEqual(changed.metadata, { step: '3' });
    assert.equal(changed.timeout_ms, 3600000);
    assert.ok(Date.parse(changed.expires_at) - Date.now() > 3590000);
    assert.equal((await ask('updateSandbox', 200, 'PATCH', s(), { body: { name: null } })).name, null);
    await ask('updateSandbox', 400, 'PATCH', s(), { body: {} });
    await ask('updateSandbox', 404, 'PATCH', s('', nobody), { body: { timeout: '1h' } });
  });

  test('pause and resume, both twice', async () => {
    const paused = await ask('pauseSandbox', 200, 'POST', s('/pause?wait=30s'));
    assert.equal(paused.sandbox.state, 'paused');
    await ask('pauseSandbox', 202, 'POST', s('/pause'));
    await ask('runCommand', 409, 'POST', s('/run'), { body: { shell: 'true' } });
    await ask('readFile', 409, 'GET', s('/files?path=/etc/hostname'));
    const resumed = await ask('resumeSandbox', 200, 'POST', s('/resume?wait=30s'));
    assert.equal(resumed.sandbox.state, 'running');
    await ask('resumeSandbox', 202, 'POST', s('/resume'));
    await ask('pauseSandbox', 404, 'POST', s('/pause', nobody));
    assert.equal((await space.run(sandbox.id, 'echo on')).stdout, 'on\n');
  });

  test('figures and console', async () => {
    const m = await ask('getSandboxMetrics', 200, 'GET', s('/metrics'));
    assert.ok(m.memory.total_bytes > 50e6 && m.host.memory_bytes > 1e6, JSON.stringify(m));
    const console_ = await space.call('GET', s('/console?tail_bytes=1000'));
    contract.check('getSandboxConsole', console_, 200);
    assert.ok(console_.data.length <= 1000);
  });

  test('a deleted one is gone, and a second delete is the same operation', async () => {
    const made = await space.create({});
    const first = await ask('deleteSandbox', 202, 'DELETE', s('', made.id));
    const second = await ask('deleteSandbox', 200, 'DELETE', s('?wait=30s', made.id));
    assert.equal(second.operation.id, first.operation.id);
    assert.equal(second.sandbox.state, 'deleted');
    const third = await ask('deleteSandbox', 200, 'DELETE', s('?wait=30s', made.id));
    assert.equal(third.operation.id, first.operation.id);
    assert.equal((await ask('getSandbox', 200, 'GET', s('', made.id))).reason, 'deleted by request');
    await ask('pauseSandbox', 410, 'POST', s('/pause', made.id));
    await ask('createExec', 410, 'POST', s('/execs', made.id), { body: { shell: 'true' } });
    await ask('updateSandbox', 410, 'PATCH', s('', made.id), { body: { timeout: '1h' } });
    assert.ok(!(await space.api('GET', '/v1/sandboxes')).items.some((i) => i.id === made.id));
    assert.ok((await space.api('GET', '/v1/sandboxes?state=deleted')).items.some((i) => i.id === made.id));
  });

  test('a timeout ends it within a second, running or paused', async () => {
    const [one, two] = await Promise.all([space.create({ timeout_ms: 4000 }), space.create({ timeout_ms: 4000 })]);
    await space.api('POST', s('/pause?wait=10s', two.id));
    for (const made of [one, two]) {
      const ended = await until('the deadline', async () => {
        const now = await space.get(made.id);
        return now.state === 'deleted' && now;
      }, 10000);
      assert.equal(ended.reason, 'deadline');
      assert.ok(Date.parse(ended.ended_at) - Date.parse(ended.expires_at) < 1000, `${ended.expires_at} ${ended.ended_at}`);
    }
  });

  test('operations are listed and filtered', async () => {
    const list = await ask('listOperations', 200, 'GET', `/v1/operations?sandbox=${sandbox.id}&kind=sandbox.create&state=succeeded`);
    assert.equal(list.items.length, 1);
    assert.equal(list.items[0].target.id, sandbox.id);
    await ask('getOperation', 404, 'GET', '/v1/operations/oaaaaaaaaaaaaaaaaaaaa');
    await ask('getOperation', 400, 'GET', `/v1/operations/${list.items[0].id}?wait=1y`);
  });

  test('Idempotency-Key: the same call again gives the same answer, another one 409', async () => {
    const headers = { 'idempotency-key': 'one' };
    const first = await ask('createSandbox', 202, 'POST', '/v1/sandboxes', { body: { name: 'idem' }, headers });
    const again = await space.call('POST', '/v1/sandboxes', { body: { name: 'idem' }, headers });
    assert.deepEqual(contract.check('createSandbox', again, 202), first);
    assert.equal(again.headers['idempotency-replayed'], 'true');
    const waited = await space.call('POST', '/v1/sandboxes?wait=60s', { body: { name: 'idem' }, headers });
    assert.equal(contract.check('createSandbox', waited, 201).sandbox.id, first.sandbox.id);
    await ask('createSandbox', 409, 'POST', '/v1/sandboxes', { body: { name: 'other' }, headers });
    await ask('createSandbox', 400, 'POST', '/v1/sandboxes', { body: {}, headers: { 'idempotency-key': 'a b' } });
    const gone = { 'idempotency-key': 'two' };
    const del = await ask('deleteSandbox', 202, 'DELETE', s('', first.sandbox.id), { headers: gone });
    assert.deepEqual(await ask('deleteSandbox', 202, 'DELETE', s('', first.sandbox.id), { headers: gone }), del);
  });
});

describe('execs', () => {
  const x = (id, tail = '') => s(`/execs/${id}${tail}`);

  test('made, attached, read, result', async () => {
    const answer = await space.call('POST', s('/execs'), { body: { command: ['sh', '-c', 'echo out; echo err >&2; exit 3'], env: { A: 'b' } } });
    const made = contract.check('createExec', answer, 201);
    assert.equal(answer.headers.location, x(made.exec.id));
    assert.equal(made.exec.state, 'reserved');
    assert.equal((await ask('getExecResult', 202, 'GET', x(made.exec.id, '/result'))).state, 'reserved');
    assert.ok(['running', 'exited'].includes((await ask('attachExec', 200, 'POST', x(made.exec.id, '/attach'))).state));
    const result = await ask('getExecResult', 200, 'GET', x(made.exec.id, '/result?wait=20s'));
    assert.equal(result.exit_code, 3);
    assert.equal(result.output_bytes, 8);
    const got = await space.output(sandbox.id, made.exec.id);
    assert.equal(got.stdout.toString(), 'out\n');
    assert.equal(got.stderr.toString(), 'err\n');
    assert.deepEqual(contract.schemas.faults({ $ref: '#/components/schemas/ExecResult' }, got.exit), []);
    const stream = await space.call('GET', x(made.exec.id, '/output'));
    contract.check('streamExecOutput', stream, 200);
    await ask('streamExecOutput', 204, 'GET', x(made.exec.id, '/output'), { headers: { 'last-event-id': 'end' } });
    await ask('streamExecOutput', 416, 'GET', x(made.exec.id, '/output?from=1000'));
    assert.equal((await ask('getExec', 200, 'GET', x(made.exec.id))).state, 'exited');
    assert.ok((await ask('listExecs', 200, 'GET', s('/execs?state=exited'))).items.some((i) => i.id === made.exec.id));
    await ask('deleteExec', 204, 'DELETE', x(made.exec.id));
    await ask('getExec', 404, 'GET', x(made.exec.id));
  });

  test('bodies that are not valid', async () => {
    for (const body of [{}, { command: ['a'], shell: 'b' }, { command: [] }, { shell: 'a', terminal: { rows: 0, cols: 1 } },
      { shell: 'a', timeout_ms: 0 }, { shell: 'a', cwd: 'relative' }, { shell: 'a', user: '../x' }, { command: ['\u0000'] }])
      await ask('createExec', 400, 'POST', s('/execs'), { body });
    await ask('createExec', 404, 'POST', s('/execs', nobody), { body: { shell: 'true' } });
    await ask('runCommand', 400, 'POST', s('/run'), { body: { shell: 'cat', encoding: 'base64', stdin_data: '!!' } });
  });

  test('the attach token opens its exec and nothing else', async () => {
    const one = await space.exec(sandbox.id, 'cat'), two = await space.exec(sandbox.id, 'true');
    const key = one.attach_token;
    await ask('attachExec', 401, 'POST', x(two.exec.id, '/attach'), { key });
    await ask('getExec', 401, 'GET', x(one.exec.id), { key });
    await ask('getSandbox', 401, 'GET', s(), { key });
    await ask('attachExec', 200, 'POST', x(one.exec.id, '/attach'), { key });
    const byQuery = await request(space.url, null, 'GET', x(one.exec.id, `/result?wait=10s&token=${key}`));
    assert.equal(contract.check('getExecResult', byQuery, 200).exit_code, 0);
    await ask('deleteExec', 204, 'DELETE', x(two.exec.id));
  });

  test('stdin, signal, and what is refused of them', async () => {
    const { exec } = await space.exec(sandbox.id, { command: ['cat'], stdin: true });
    await ask('writeExecStdin', 409, 'POST', x(exec.id, '/stdin'), { body: 'early' });
    await ask('attachExec', 200, 'POST', x(exec.id, '/attach'));
    assert.deepEqual(await ask('writeExecStdin', 200, 'POST', x(exec.id, '/stdin'), { body: 'one\n' }), { accepted_bytes: 4, eof: false });
    assert.equal((await ask('writeExecStdin', 200, 'POST', x(exec.id, '/stdin?eof=true'), { body: 'two\n' })).eof, true);
    const got = await space.output(sandbox.id, exec.id);
    assert.equal(got.stdout.toString(), 'one\ntwo\n');
    const sleeper = (await space.exec(sandbox.id, { command: ['sleep', '100'] })).exec;
    await ask('signalExec', 409, 'POST', x(sleeper.id, '/signal'), { body: { signal: 'TERM' } });
    await ask('attachExec', 200, 'POST', x(sleeper.id, '/attach'));
    await ask('writeExecStdin', 409, 'POST', x(sleeper.id, '/stdin'), { body: 'x' });
    await ask('signalExec', 400, 'POST', x(sleeper.id, '/signal'), { body: { signal: 'NOPE' } });
    await ask('signalExec', 204, 'POST', x(sleeper.id, '/signal'), { body: { signal: 'TERM' } });
    const result = await ask('getExecResult', 200, 'GET', x(sleeper.id, '/result?wait=20s'));
    assert.equal(result.signal, 'TERM');
    assert.equal(result.exit_code, null);
  });

  test('a terminal over a WebSocket', async () => {
    const { exec, attach_token } = await space.exec(sandbox.id, { command: ['bash', '--norc'], terminal: { rows: 24, cols: 80 }, env: { PS1: '$ ' } });
    const ws = websocket(space.url, x(exec.id, `/ws?token=${attach_token}`));
    await until('the prompt', () => ws.bytes().includes('$ '));
    assert.equal(ws.status, 101);
    contract.seen.set('attachExecWebSocket', new Set([101]));
    assert.deepEqual(ws.json()[0], { type: 'start', exec_id: exec.id, offset: 0 });
    ws.text({ type: 'resize', rows: 40, cols: 100 });
    await ask('resizeExec', 204, 'POST', x(exec.id, '/resize'), { body: { rows: 41, cols: 101 } });
    await ask('resizeExec', 400, 'POST', x(exec.id, '/resize'), { body: { rows: 41 } });
    ws.binary('stty size\n');
    await until('the size', () => ws.bytes().includes('41 101'));
    ws.binary('exit 7\n');
    await until('the exit', () => ws.closed);
    assert.equal(ws.closed, 1000);
    const exit = ws.json().at(-1);
    assert.equal(exit.type, 'exit');
    assert.equal(exit.exit_code, 7);
    const plain = (await space.exec(sandbox.id, 'true')).exec;
    await ask('attachExecWebSocket', 409, 'GET', x(plain.id, '/ws'));
  });

  test('run', async () => {
    const done = await ask('runCommand', 200, 'POST', s('/run'), { body: { shell: 'sort; echo $FROM_SANDBOX >&2; exit 4', stdin_data: 'b\na\n' } });
    assert.equal(done.stdout, 'a\nb\n');
    assert.equal(done.stderr, 'yes\n');
    assert.equal(done.exit_code, 4);
    const cut = await ask('runCommand', 200, 'POST', s('/run'), { body: { shell: 'head -c 100000 /dev/zero', max_output_bytes: 10, encoding: 'base64' } });
    assert.equal(Buffer.from(cut.stdout, 'base64').length, 10);
    assert.equal(cut.truncated, true);
    assert.equal(cut.output_bytes, 100000);
    const late = await ask('runCommand', 200, 'POST', s('/run'), { body: { shell: 'sleep 30', timeout_ms: 300 } });
    assert.equal(late.timed_out, true);
    assert.equal(late.exit_code, null);
    const odd = await ask('runCommand', 200, 'POST', s('/run'), { body: { shell: "printf 'a\\377b'" } });
    assert.equal(odd.stdout, 'a\ufffdb');
    const missing = await space.call('POST', s('/run'), { body: { command: ['/no/such/program'] } });
    contract.check('runCommand', missing);
  });

  test('Idempotency-Key names the same exec', async () => {
    const headers = { 'idempotency-key': 'exec-one' }, body = { shell: 'true' };
    const first = await ask('createExec', 201, 'POST', s('/execs'), { body, headers });
    const again = await ask('createExec', 201, 'POST', s('/execs'), { body, headers });
    assert.equal(again.exec.id, first.exec.id);
    assert.notEqual(again.attach_token, first.attach_token);
    await ask('attachExec', 200, 'POST', x(first.exec.id, '/attach'), { key: again.attach_token });
  });
});

describe('files', () => {
  const f = (path, more = '') => s(`/files?path=${encodeURIComponent(path)}${more}`);

  test('write, read, range, stat, list, move, attributes, remove', async () => {
    const content = Buffer.from('0123456789');
    assert.deepEqual(await ask('writeFile', 200, 'PUT', f('/tmp/d/one file', '&mode=0640'), { body: content }), { path: '/tmp/d/one file', size_bytes: 10 });
    const whole = await space.call('GET', f('/tmp/d/one file'));
    contract.check('readFile', whole, 200);
    assert.deepEqual(whole.data, content);
    assert.equal(whole.headers['space-mode'], '0640');
    assert.equal(whole.headers['content-length'], '10');
    for (const [range, bytes, head] of [['bytes=2-4', '234', 'bytes 2-4/10'], ['bytes=-3', '789', 'bytes 7-9/10'], ['bytes=8-', '89', 'bytes 8-9/10']]) {
      const part = await space.call('GET', f('/tmp/d/one file'), { headers: { range } });
      contract.check('readFile', part, 206);
      assert.equal(part.text, bytes);
      assert.equal(part.headers['content-range'], head);
    }
    await ask('readFile', 416, 'GET', f('/tmp/d/one file'), { headers: { range: 'bytes=10-' } });
    const head = await space.call('HEAD', f('/tmp/d/one file'));
    assert.equal(head.status, 200);
    assert.equal(head.headers['content-length'], '10');
    assert.ok((await space.call('GET', f('/proc/cpuinfo'))).text.includes('processor'), 'files of /proc have no size and have content');
    const info = await ask('statFile', 200, 'GET', s('/files/stat?path=/tmp/d/one%20file'));
    assert.equal(info.size_bytes, 10);
    assert.equal(info.type, 'file');
    await ask('makeDirectory', 204, 'POST', s('/files/mkdir'), { body: { path: '/tmp/d/sub/deep' } });
    await ask('makeDirectory', 409, 'POST', s('/files/mkdir'), { body: { path: '/tmp/d/sub/deep', parents: false } });
    await ask('moveFile', 204, 'POST', s('/files/move'), { body: { from: '/tmp/d/one file', to: '/tmp/d/two' } });
    await ask('setFileAttributes', 204, 'POST', s('/files/attributes'), { body: { path: '/tmp/d/two', mode: '0600', owner: 'user' } });
    assert.equal((await ask('statFile', 200, 'GET', s('/files/stat?path=/tmp/d/two'))).uid, 1000);
    const page = await ask('listFiles', 200, 'GET', s('/files/list?path=/tmp/d&limit=1'));
    assert.equal(page.items.length, 1);
    const rest = await ask('listFiles', 200, 'GET', s(`/files/list?path=/tmp/d&limit=10&cursor=${page.next_cursor}`));
    assert.deepEqual([...page.items, ...rest.items].map((i) => i.name), ['sub', 'two']);
    assert.equal(rest.next_cursor, null);
    await ask('removeFile', 409, 'DELETE', f('/tmp/d'));
    await ask('removeFile', 204, 'DELETE', f('/tmp/d', '&recursive=true'));
    await ask('statFile', 404, 'GET', s('/files/stat?path=/tmp/d'));
  });

  test('what is refused', async () => {
    await ask('readFile', 404, 'GET', f('/no/such'));
    await ask('readFile', 400, 'GET', f('relative'));
    await ask('readFile', 400, 'GET', s('/files'));
    await ask('readFile', 403, 'GET', f('/etc/shadow', '&user=user'));
    await ask('writeFile', 403, 'PUT', f('/etc/x', '&user=user'), { body: 'x' });
    await ask('writeFile', 400, 'PUT', f('/tmp/x', '&mode=999'), { body: 'x' });
    await ask('makeDirectory', 400, 'POST', s('/files/mkdir'), { body: { path: '/tmp/x', wat: 1 } });
    await ask('moveFile', 404, 'POST', s('/files/move'), { body: { from: '/no/such', to: '/tmp/y' } });
    await ask('setFileAttributes', 400, 'POST', s('/files/attributes'), { body: { path: '/tmp' } });
    await ask('listFiles', 404, 'GET', s('/files/list?path=/no/such'));
    await ask('listFiles', 404, 'GET', s('/files/list?path=/', nobody));
  });

  test('tar up and down', async () => {
    await space.run(sandbox.id, 'mkdir -p /tmp/t/a && echo hello > /tmp/t/a/b && ln -s b /tmp/t/a/link');
    const tar = await space.call('GET', s('/files/tar?path=/tmp/t'));
    contract.check('downloadTar', tar, 200);
    assert.equal(tar.data.length % 512, 0);
    await ask('uploadTar', 204, 'PUT', s('/files/tar?path=/tmp/u'), { body: tar.data, headers: { 'content-type': 'application/x-tar' } });
    assert.equal((await space.run(sandbox.id, 'cat /tmp/u/a/link')).stdout, 'hello\n');
    await ask('downloadTar', 404, 'GET', s('/files/tar?path=/no/such'));
    await ask('uploadTar', 400, 'PUT', s('/files/tar?path=/tmp/v'), { body: Buffer.alloc(2048, 'x') });
  });

  test('watch', async () => {
    await ask('watchFiles', 404, 'GET', s('/files/watch?path=/no/such'));
    await space.run(sandbox.id, 'mkdir -p /tmp/w');
    const names = [], again = new AbortController();
    try {
      for await (const e of events(space.url, space.key, s('/files/watch?path=/tmp/w&recursive=true'), { signal: again.signal })) {
        names.push(e.event);
        if (e.event === 'ready') await space.run(sandbox.id, 'echo 1 > /tmp/w/x; mv /tmp/w/x /tmp/w/z; rm /tmp/w/z');
        if (e.event === 'remove') again.abort();
      }
    } catch (error) { if (!again.signal.aborted) throw error; }
    contract.seen.set('watchFiles', new Set([200]));
    for (const name of ['ready', 'create', 'modify', 'move', 'remove']) assert.ok(names.includes(name), `${name} in ${names}`);
  });
});

describe('ports', () => {
  const echo = String.raw`
const http = require('http');
const s = http.createServer((q, a) => {
  const parts = [];
  q.on('data', (d) => parts.push(d));
  q.on('end', () => {
    if (q.url === '/chunks') { a.write('one'); setTimeout(() => a.end('two'), 50); return; }
    if (q.url === '/none') { a.writeHead(204); a.end(); return; }
    if (q.url === '/cookies') a.setHeader('Set-Cookie', ['a=1', 'b=2']);
    a.setHeader('X-From', 'guest');
    a.end(JSON.stringify({ method: q.method, url: q.url, headers: q.headers, body: Buffer.concat(parts).toString() }));
  });
});
s.on('upgrade', (q, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n');
  socket.on('data', (d) => { if (d.toString() === 'bye') socket.end(); else socket.write(d.toString().toUpperCase()); });
});
s.listen(8080);`;
  before(async () => {
    await space.call('PUT', s('/files?path=/tmp/echo.js'), { body: echo });
    const { exec } = await space.exec(sandbox.id, 'node /tmp/echo.js');
    await space.api('POST', s(`/execs/${exec.id}/attach`));
    await until('the port', async () => (await space.call('GET', s('/ports/8080/'))).status === 200, 120000, 200);
  });

  test('every method, streamed, with the head written anew', async () => {
    for (const [operation, method] of [['proxyGet', 'GET'], ['proxyPost', 'POST'], ['proxyPut', 'PUT'], ['proxyPatch', 'PATCH'], ['proxyDelete', 'DELETE'], ['proxyOptions', 'OPTIONS']]) {
      const body = ['POST', 'PUT', 'PATCH'].includes(method) ? 'hello' : undefined;
      const answer = await space.call(method, s('/ports/8080/a%2Fb/c?q=1&r=%20'), { body, headers: { 'x-mine': 'yes', cookie: 'c=d' } });
      contract.check(operation, answer, 200);
      const seen = answer.json ?? JSON.parse(answer.text);
      assert.equal(seen.method, method);
      assert.equal(seen.url, '/a%2Fb/c?q=1&r=%20');
      assert.equal(seen.body, body ?? '');
      assert.equal(seen.headers['x-mine'], 'yes');
      assert.equal(seen.headers.cookie, 'c=d');
      assert.equal(seen.headers.authorization, undefined, 'the key never reaches the guest');
      assert.equal(seen.headers['x-forwarded-for'], '127.0.0.1');
      assert.equal(seen.headers['x-forwarded-proto'], 'http');
      assert.equal(answer.headers['x-from'], 'guest');
    }
    const head = await space.call('HEAD', s('/ports/8080/'));
    contract.check('proxyHead', head, 200);
    assert.equal(head.data.length, 0);
  });

  test('chunks, no content, several cookies, Space-Key', async () => {
    assert.equal((await space.call('GET', s('/ports/8080/chunks'))).text, 'onetwo');
    assert.equal((await space.call('GET', s('/ports/8080/none'))).status, 204);
    assert.deepEqual((await space.call('GET', s('/ports/8080/cookies'))).headers['set-cookie'], ['a=1', 'b=2']);
    const answer = await space.call('GET', s('/ports/8080/'), { key: null, headers: { 'space-key': space.key, authorization: 'Basic abc' } });
    const seen = JSON.parse(answer.text);
    assert.equal(seen.headers.authorization, 'Basic abc');
    assert.equal(seen.headers['space-key'], undefined);
  });

  test('a port where nothing listens, and one that is none', async () => {
    assert.equal((await space.call('GET', s('/ports/9/'))).status, 503);
    assert.equal((await space.call('GET', s('/ports/70000/'))).status, 400);
    assert.equal((await space.call('GET', s('/ports/8080/'), { key: null })).status, 401);
  });

  test('WebSocket passes through', async () => {
    const ws = net.connect(Number(new URL(space.url).port), '127.0.0.1');
    let got = '';
    ws.on('data', (d) => { got += d; });
    ws.write(`GET ${s('/ports/8080/ws')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${space.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`);
    await until('101', () => got.includes('\r\n\r\n'));
    assert.match(got, /^HTTP\/1.1 101 /);
    ws.write('hello');
    await until('the echo', () => got.includes('HELLO'));
    const closed = new Promise((done) => { ws.on('close', done); });
    ws.write('bye');
    await closed;
  });

  test('a plain TCP tunnel, with half a close', async () => {
    const { exec } = await space.exec(sandbox.id, "python3 -c \"import socket; s=socket.create_server(('127.0.0.1',7000)); c=s.accept()[0]; d=b''\nwhile True:\n  p=c.recv(100)\n  if not p: break\n  d+=p\nc.sendall(d[::-1]); c.close()\"");
    await space.api('POST', s(`/execs/${exec.id}/attach`));
    await ask('tunnelPort', 503, 'GET', s('/tcp/9'), { headers: { connection: 'upgrade', upgrade: 'tcp' } });
    await until('the server', async () => (await space.run(sandbox.id, 'ss -ltn | grep -q 7000')).exit_code === 0, 60000, 200);
    const socket = net.connect({ port: Number(new URL(space.url).port), host: '127.0.0.1', allowHalfOpen: true });
    let got = '', ended = false;
    socket.on('data', (d) => { got += d; });
    socket.on('end', () => { ended = true; });
    socket.write(`GET ${s('/tcp/7000')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${space.key}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`);
    await until('101', () => got.includes('\r\n\r\n'));
    assert.match(got, /^HTTP\/1.1 101 /);
    contract.seen.set('tunnelPort', new Set([101]));
    socket.end('abc');
    await until('the answer after the half close', () => ended);
    assert.ok(got.endsWith('\r\n\r\ncba'), got);
  });
});

describe('templates', () => {
  test('list, get, log, tags, refusals', async () => {
    const { items } = await ask('listTemplates', 200, 'GET', '/v1/templates');
    assert.equal(items.length, 1);
    const { digest } = items[0];
    assert.deepEqual(items[0].tags, ['base']);
    const whole = await ask('getTemplate', 200, 'GET', '/v1/templates/base');
    assert.equal(whole.digest, digest);
    assert.match(whole.kernel, /^\d+\.\d+/);
    assert.match(whole.agent_sha256, /^[0-9a-f]{64}$/);
    assert.ok(whole.packages.some((p) => p.name === 'bash' && p.version));
    assert.equal(items[0].packages, undefined);
    assert.deepEqual(whole.checkpoints.map((c) => c.shape), [whole.default_shape]);
    assert.ok(whole.checkpoints[0].qemu_version);
    await ask('getTemplate', 404, 'GET', '/v1/templates/other');
    contract.check('getTemplateLog', await space.call('GET', `/v1/templates/${digest}/log`), 200);
    assert.deepEqual((await ask('setTemplateTag', 200, 'PUT', `/v1/templates/${digest}/tags/other`)).tags.sort(), ['base', 'other']);
    await ask('deleteTemplateTag', 204, 'DELETE', `/v1/templates/${digest}/tags/other`);
    await ask('deleteTemplateTag', 404, 'DELETE', `/v1/templates/${digest}/tags/other`);
    await ask('deleteTemplate', 400, 'DELETE', '/v1/templates/base');
    await ask('deleteTemplate', 409, 'DELETE', `/v1/templates/${digest}`);
    await ask('deleteTemplate', 404, 'DELETE', `/v1/templates/${'0'.repeat(64)}`);
    await ask('importTemplate', 400, 'POST', '/v1/templates', { body: { incoming: '../x' } });
    const { operation } = await ask('importTemplate', 202, 'POST', '/v1/templates', { body: { incoming: 'nosuch', tag: 'x' } });
    const ended = await ask('getOperation', 200, 'GET', `/v1/operations/${operation.id}?wait=30s`);
    assert.equal(ended.state, 'failed');
    assert.equal(ended.target.id, null);
    const refused = await ask('importTemplate', 404, 'POST', '/v1/templates?wait=30s', { body: { incoming: `nosuch.${'x'.repeat(73)}` } });
    assert.ok(refused.operation_id);
    assert.match(space.log(), new RegExp(`operation failed.*${refused.operation_id}.*template.import`));
    await ask('importTemplate', 400, 'POST', '/v1/templates', { body: { incoming: 'x'.repeat(81) } });
  });
});

describe('keys and projects', () => {
  test('made, listed, used, revoked; scopes hold', async () => {
    const { key, secret } = await ask('createKey', 201, 'POST', '/v1/keys', { body: { name: 'ci', scopes: ['sandboxes:read', 'keys'] } });
    assert.deepEqual(key.scopes.sort(), ['keys', 'sandboxes:read']);
    assert.equal(key.prefix, secret.slice(0, 13));
    assert.equal((await ask('getKey', 200, 'GET', `/v1/keys/${key.id}`)).name, 'ci');
    await ask('listSandboxes', 200, 'GET', '/v1/sandboxes', { key: secret });
    await ask('createSandbox', 403, 'POST', '/v1/sandboxes', { key: secret, body: {} });
    await ask('createKey', 403, 'POST', '/v1/keys', { key: secret, body: { name: 'more', scopes: ['execs'] } });
    await ask('createKey', 400, 'POST', '/v1/keys', { body: { name: 'x', scopes: ['everything'] } });
    await ask('createKey', 400, 'POST', '/v1/keys', { body: { name: 'x', scopes: ['execs'], expires_at: '2001-01-01T00:00:00Z' } });
    assert.ok((await ask('listKeys', 200, 'GET', '/v1/keys')).items.some((i) => i.id === key.id));
    await ask('revokeKey', 204, 'DELETE', `/v1/keys/${key.id}`);
    await ask('revokeKey', 204, 'DELETE', `/v1/keys/${key.id}`);
    await ask('listSandboxes', 401, 'GET', '/v1/sandboxes', { key: secret });
    assert.ok(!(await ask('listKeys', 200, 'GET', '/v1/keys')).items.some((i) => i.id === key.id));
    assert.ok((await ask('listKeys', 200, 'GET', '/v1/keys?all=true')).items.some((i) => i.id === key.id));
    await ask('getKey', 404, 'GET', '/v1/keys/kaaaaaaaaaaaaaaaaaaaa');
    const soon = await ask('createKey', 201, 'POST', '/v1/keys', { body: { name: 'soon', scopes: ['execs'], expires_at: new Date(Date.now() + 1000).toISOString() } });
    await until('the key to expire', async () => (await space.call('GET', '/v1/node', { key: soon.secret })).status === 401, 5000);
  });

  test('what belongs to another project does not exist', async () => {
    const project = await ask('createProject', 201, 'POST', '/v1/projects', { body: { name: 'other' } });
    await ask('createProject', 409, 'POST', '/v1/projects', { body: { name: 'other' } });
    assert.equal((await ask('getProject', 200, 'GET', `/v1/projects/${project.id}`)).name, 'other');
    await ask('getProject', 404, 'GET', '/v1/projects/paaaaaaaaaaaaaaaaaaaa');
    assert.ok((await ask('listProjects', 200, 'GET', '/v1/projects')).items.length >= 2);
    const { secret: key } = await ask('createKey', 201, 'POST', '/v1/keys', { body: { name: 'k', scopes: ['sandboxes:write', 'execs', 'files', 'ports', 'keys'], project: project.id } });
    const { exec } = await space.exec(sandbox.id, 'true');
    const operation = (await space.api('GET', `/v1/operations?sandbox=${sandbox.id}`)).items[0];
    for (const [method, target, body] of [['GET', s()], ['PATCH', s(), { timeout: '1h' }], ['DELETE', s()], ['POST', s('/pause')], ['POST', s('/resume')],
      ['GET', s('/metrics')], ['GET', s('/console')], ['GET', s('/execs')], ['POST', s('/execs'), { shell: 'true' }], ['POST', s('/run'), { shell: 'true' }],
      ['GET', s(`/execs/${exec.id}`)], ['POST', s(`/execs/${exec.id}/attach`)], ['GET', s(`/execs/${exec.id}/output`)], ['DELETE', s(`/execs/${exec.id}`)],
      ['POST', s(`/execs/${exec.id}/stdin`)], ['POST', s(`/execs/${exec.id}/signal`), { signal: 9 }], ['GET', s(`/execs/${exec.id}/result`)],
      ['GET', s('/files?path=/etc/passwd')], ['PUT', s('/files?path=/tmp/x')], ['GET', s('/files/list?path=/')], ['GET', s('/files/watch?path=/')],
      ['GET', s('/files/tar?path=/etc')], ['GET', s('/ports/80/')], ['GET', `/v1/operations/${operation.id}`]]) {
      const answer = await space.call(method, target, { key, body });
      assert.equal(answer.status, 404, `${method} ${target}: ${answer.status} ${answer.text}`);
    }
    assert.equal((await space.api('GET', '/v1/sandboxes', undefined, { key })).items.length, 0);
    assert.equal((await space.api('GET', '/v1/operations', undefined, { key })).items.length, 0);
  });
});

test('every operation of the description was called', () => {
  assert.deepEqual(contract.missing(), []);
});
