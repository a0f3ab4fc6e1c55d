// What flows in and out of a sandbox: output of many execs, of one exec to several readers, folders, ports.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import http from 'node:http';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { Space, request, until, websocket } from './lib/space.mjs';
import { leftovers } from './lib/machine_host.mjs';

let space, sandbox;
before(async () => {
  space = await Space.start({ config: { pool_hot: 1, pool_blank: 0 } });
  sandbox = await space.create({ timeout: '1h' });
});
after(async () => assert.deepEqual(await leftovers(space), []));

const s = (tail) => `/v1/sandboxes/${sandbox.id}${tail}`;
const file = (name, more = '') => s(`/files?path=${encodeURIComponent(name)}${more}`);
const put = async (name, body) => assert.equal((await space.call('PUT', file(name), { body })).status, 200, name);

describe('execs', () => {
  test('200 at the same time, each with its own output and exit code', async (t) => {
    const count = 200;
    await space.run(sandbox.id, 'mkfifo /tmp/gate');
    const running = Array.from({ length: count }, (_, i) => space.run(sandbox.id, {
      shell: `: < /tmp/gate; echo out $N; echo err $N >&2; exit $((N % 250))`, env: { N: String(i) } }));
    const failed = Promise.all(running);
    failed.catch(() => {});
    await Promise.race([failed, until('all of them to run', async () =>
      (await space.api('GET', s('/execs?state=running&limit=1000'))).items.length === count, 120000, 250)]);
    const begun = Date.now();
    // Opening a fifo waits for the other end.
    const gate = (await space.exec(sandbox.id, 'exec sleep 600 <> /tmp/gate')).exec;
    await space.api('POST', s(`/execs/${gate.id}/attach`));
    const results = await failed;
    t.diagnostic(`all had ended ${Date.now() - begun} ms after the gate was opened`);
    await space.call('DELETE', s(`/execs/${gate.id}`));
    for (const [i, result] of results.entries()) {
      assert.equal(result.exit_code, i % 250, `exec ${i}: ${JSON.stringify(result)}`);
      assert.equal(result.stdout, `out ${i}\n`);
      assert.equal(result.stderr, `err ${i}\n`);
    }
  });

  // 20 MiB of numbered lines, to stdout and stderr in turn. The order between the two is not promised, each one's is; and all
  // readers see the same order.
  const MIB = 1048576, total = 20 * MIB;
  const writer = `
import sys
line = 0
left = ${total}
while left > 0:
    block = b"".join(b"%015d\\n" % (line + i) for i in range(1024))
    line += 1024
    (sys.stdout if line // 1024 % 2 else sys.stderr).buffer.write(block)
    sys.stdout.flush(); sys.stderr.flush()
    left -= len(block)
`;
  class Reader {
    constructor(id) { Object.assign(this, { id, all: crypto.createHash('sha256'), stdout: crypto.createHash('sha256'), stderr: crypto.createHash('sha256'), bytes: 0, last: null, connections: 0, exit: null, dropped: 0 }); }

    /** Read from where it was until the end, or until about `limit` bytes more. */
    async read(limit = Infinity) {
      const stop = new AbortController(), begun = this.bytes;
      this.connections++;
      try {
        for await (const e of space.events(s(`/execs/${this.id}/output`), { signal: stop.signal, headers: this.last === null ? {} : { 'last-event-id': this.last } })) {
          if (e.event === 'exit') this.exit = JSON.parse(e.data);
          else if (e.event === 'dropped') this.dropped += JSON.parse(e.data).bytes;
          else {
            const data = Buffer.from(e.data, 'base64');
            this.all.update(data);
            this[e.event].update(data);
            this.bytes += data.length;
            assert.equal(Number(e.id), this.bytes + this.dropped, 'the id counts the bytes');
          }
          this.last = e.id;
          if (this.bytes - begun > limit) { stop.abort(); break; }
        }
      } catch (error) { if (!stop.signal.aborted) throw error; }
      return this;
    }
  }
  const expected = (odd) => {
    const hash = crypto.createHash('sha256');
    for (let i = odd ? 0 : 1024; i < total / 16; i += 2048)
      hash.update(Array.from({ length: 1024 }, (_, k) => `${String(i + k).padStart(15, '0')}\n`).join(''));
    return hash.digest('hex');
  };

  test('20 MiB to two readers, one of which leaves and comes back again and again', async (t) => {
    const { exec } = await space.exec(sandbox.id, { command: ['python3', '-c', writer], buffer_bytes: 24 * MIB });
    const steady = new Reader(exec.id), restless = new Reader(exec.id);
    const begun = Date.now();
    const coming = (async () => { while (!restless.exit) await restless.read(1.5 * MIB); })();
    await Promise.all([steady.read(), coming]);
    const seconds = (Date.now() - begun) / 1000;
    assert.equal(steady.all.digest('hex'), restless.all.digest('hex'));
    const digests = { stdout: expected(true), stderr: expected(false) };
    for (const r of [steady, restless]) {
      assert.equal(r.bytes, total);
      assert.equal(r.dropped, 0);
      assert.deepEqual({ stdout: r.stdout.digest('hex'), stderr: r.stderr.digest('hex') }, digests);
      assert.equal(r.exit.exit_code, 0);
      assert.equal(r.exit.output_bytes, total);
    }
    assert.ok(restless.connections > 10, `${restless.connections} connections`);
    t.diagnostic(`${(total / MIB / seconds).toFixed(1)} MiB/s, ${restless.connections} connections of the restless reader`);
    assert.equal((await space.call('GET', s(`/execs/${exec.id}/output`), { headers: { 'last-event-id': 'end' } })).status, 204);
  });
});

describe('files', () => {
  test('parts of a file', async () => {
    await space.run(sandbox.id, 'head -c 40000000 /dev/zero | tr "\\0" a > /var/tmp/big; printf "needle" | dd of=/var/tmp/big bs=1 seek=17000000 conv=notrunc status=none');
    const at = async (range) => space.call('GET', file('/var/tmp/big'), { headers: { range: `bytes=${range}` } });
    const [first, middle, last] = [await at('0-9'), await at('16999999-17000006'), await at('-5')];
    assert.deepEqual([first.status, middle.status, last.status], [206, 206, 206]);
    assert.equal(middle.text, 'aneedlea');
    assert.equal(first.data.length, 10);
    assert.equal(last.headers['content-range'], 'bytes 39999995-39999999/40000000');
    assert.equal((await at('40000000-')).status, 416);
  });

  test('a folder down and up as tar: modes, owners, times, links, long names', async () => {
    const made = await space.run(sandbox.id, `set -e; rm -rf /var/t; deep=$(printf 'd%.0s' $(seq 120))/$(printf 'e%.0s' $(seq 120)); mkdir -p /var/t/empty /var/t/$deep; cd /var/t
      echo one > plain; chmod 0640 plain; echo two > tool; head -c 3000000 /dev/urandom > data; chmod 1777 empty
      ln -s plain soft; ln -s /nowhere/at/all dangling; ln plain hard; chown user:user tool; chmod 4755 tool; touch -d '2001-02-03 04:05:06' plain
      echo deep > "$deep/name with space and ü"; mkfifo pipe`);
    assert.equal(made.exit_code, 0, made.stderr);
    const answer = await space.call('GET', s('/files/tar?path=/var/t'), { timeoutMs: 120000 });
    assert.equal(answer.status, 200);
    const up = await space.call('PUT', s('/files/tar?path=/var/u'), { body: answer.data, timeoutMs: 120000 });
    assert.equal(up.status, 204, up.text);
    const look = async (folder) => (await space.run(sandbox.id, `cd ${folder} && find . -mindepth 1 ! -type d -printf '%p %y %m %u %g %s %Ts %l\\n' -o -type d -mindepth 1 -printf '%p %y %m %u %g\\n' | sort; find . -type f -exec sha256sum {} + | sort`)).stdout;
    const [before, behind] = [await look('/var/t'), await look('/var/u')];
    assert.ok(before.includes('name with space and ü') && before.includes('4755 user user'), before);
    assert.deepEqual(behind.split('\n'), before.split('\n').filter((line) => !/^\.\/pipe p/.test(line) || behind.includes('./pipe p')));
    // Debian's own tar reads it too.
    await put('/tmp/a.tar', answer.data);
    const own = await space.run(sandbox.id, 'mkdir /var/v && tar -C /var/v -xf /tmp/a.tar && diff -r --no-dereference --exclude=pipe /var/t /var/v && stat -c %a /var/v/tool');
    assert.equal(own.stdout, '4755\n', own.stderr);
  });

  test('watch: everything in a tree, in folders made meanwhile too', async () => {
    await space.run(sandbox.id, 'rm -rf /var/w; mkdir -p /var/w');
    const stop = new AbortController(), seen = [];
    try {
      for await (const e of space.events(s('/files/watch?path=/var/w&recursive=true'), { signal: AbortSignal.any([stop.signal, AbortSignal.timeout(60000)]) })) {
        if (e.event === 'ready') {
          await space.run(sandbox.id, 'mkdir /var/w/sub');
          space.run(sandbox.id, 'for i in $(seq 20); do echo $i > /var/w/sub/$i; done; mv /var/w/sub/1 /var/w/one; rm /var/w/sub/2; chmod 600 /var/w/one; touch /var/w/end').catch(() => {});
        }
        if (e.event === 'ready') continue;
        const data = JSON.parse(e.data);
        seen.push({ type: e.event, ...data });
        if (data.path?.endsWith('/end')) stop.abort();
      }
    } catch (error) { if (!stop.signal.aborted) throw error; }
    const has = (type, name) => seen.some((e) => e.type === type && (e.path === name || e.to === name));
    for (let i = 3; i <= 20; i++) assert.ok(has('create', `/var/w/sub/${i}`) || has('modify', `/var/w/sub/${i}`), `${i}: ${JSON.stringify(seen)}`);
    assert.ok(has('move', '/var/w/one'), JSON.stringify(seen));
    assert.ok(has('remove', '/var/w/sub/2') && has('attributes', '/var/w/one'), JSON.stringify(seen));
  });
});

describe('ports', () => {
  const server = String.raw`
const http = require('http'), crypto = require('crypto');
let go;
const gate = new Promise((done) => { go = done; });
const s = http.createServer(async (q, a) => {
  if (q.url === '/go') { go(); a.end('gone'); return; }
  if (q.url === '/stream') { a.write('first'); await gate; a.end('second'); return; }
  if (q.url.startsWith('/bytes/')) { a.end(Buffer.alloc(Number(q.url.slice(7)), 'b')); return; }
  const hash = crypto.createHash('sha256');
  q.on('data', (d) => hash.update(d)).on('end', () => a.end(JSON.stringify({ url: q.url, host: q.headers.host, sha256: hash.digest('hex') })));
});
s.on('upgrade', (q, socket) => {
  const accept = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n');
  let rest = Buffer.alloc(0);
  socket.on('error', () => {});
  socket.on('data', (d) => {                       // short masked frames, sent back as they are
    rest = Buffer.concat([rest, d]);
    while (rest.length >= 6 && rest.length >= 6 + (rest[1] & 127)) {
      const n = rest[1] & 127, mask = rest.subarray(2, 6), body = Buffer.from(rest.subarray(6, 6 + n).map((b, i) => b ^ mask[i % 4]));
      socket.write(Buffer.concat([Buffer.from([rest[0], n]), body]));
      rest = rest.subarray(6 + n);
    }
  });
});
s.listen(9000, '127.0.0.1');`;

  before(async () => {
    await put('/srv/www/hello.txt', 'hello from the guest\n');
    await put('/tmp/server.js', server);
    for (const command of [['python3', '-m', 'http.server', '8000', '--directory', '/srv/www', '--bind', '127.0.0.1'], ['node', '/tmp/server.js']]) {
      const { exec } = await space.exec(sandbox.id, { command });
      await space.api('POST', s(`/execs/${exec.id}/attach`));
    }
    for (const port of [8000, 9000])
      await until(`port ${port}`, async () => (await space.call('GET', s(`/ports/${port}/`))).status === 200, 60000, 200);
  });
  const byHost = async (port, target, options = {}) => {
    const { domain } = await space.api('GET', '/v1/node');
    return request(space.url, space.key, options.method ?? 'GET', target, { ...options, headers: { host: `${port}-${sandbox.id}.${domain}`, ...options.headers } });
  };

  test('by path and by host name', async () => {
    for (const answer of [await space.call('GET', s('/ports/8000/hello.txt')), await byHost(8000, '/hello.txt')]) {
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.text, 'hello from the guest\n');
      assert.match(answer.headers.server, /SimpleHTTP/);
    }
    assert.equal((await byHost(8000, '/nothing')).status, 404);
    assert.equal((await byHost(8000, '/hello.txt', { headers: { authorization: 'Bearer wrong' } })).status, 401);
    const seen = JSON.parse((await byHost(9000, '/v1/sandboxes?a=b%20c')).text);
    assert.equal(seen.url, '/v1/sandboxes?a=b%20c', 'nothing of the API is in the way under a host name');
  });

  test('bodies stream both ways', async () => {
    const answer = await new Promise((done, fail) => {
      http.get(new URL(s('/ports/9000/stream'), space.url), { headers: { authorization: `Bearer ${space.key}` } }, done).on('error', fail);
    });
    let text = '';
    answer.on('data', (d) => { text += d; });
    await until('the first part while the second is not sent', () => text === 'first');
    await space.call('GET', s('/ports/9000/go'));
    await until('the end', () => answer.complete);
    assert.equal(text, 'firstsecond');

    const size = 16 << 20, block = crypto.randomBytes(1 << 16), hash = crypto.createHash('sha256');
    const source = Readable.from((function* blocks() { for (let i = 0; i < size >> 16; i++) { hash.update(block); yield Buffer.from(block); } })(), { objectMode: false });
    const up = await space.call('POST', s('/ports/9000/upload'), { body: source, timeoutMs: 120000 });
    assert.equal(JSON.parse(up.text).sha256, hash.digest('hex'));
    assert.equal((await space.call('GET', s(`/ports/9000/bytes/${size}`), { timeoutMs: 120000 })).data.length, size);
  });

  test('a WebSocket, by path and by host name', async () => {
    const { domain } = await space.api('GET', '/v1/node');
    for (const [target, headers] of [[s('/ports/9000/ws'), {}], ['/ws', { Host: `9000-${sandbox.id}.${domain}` }]]) {
      const ws = websocket(space.url, target, { authorization: `Bearer ${space.key}`, ...headers });
      await until('the answer', () => ws.status || ws.closed);
      assert.equal(ws.status, 101, ws.head);
      for (let i = 0; i < 10; i++) ws.text(`message ${i}`);
      await until('the echoes', () => ws.frames.length === 10);
      assert.deepEqual(ws.frames.map((f) => f.data.toString()), Array.from({ length: 10 }, (_, i) => `message ${i}`));
      ws.socket.destroy();
    }
  });
});
