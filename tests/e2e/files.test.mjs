// Large files and port names: streamed both ways with the daemon's memory flat.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import http from 'node:http';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import { Space, until } from './lib/space.mjs';

const MIB = 1 << 20;
const size = Number(process.env.SPACE_TEST_FILE_MIB ?? 1024) * MIB;
let space, sandbox;
before(async () => {
  space = await Space.start({ config: { domain: 'space.test' } });
  sandbox = await space.create({ timeout: '1h', shape: { disk_mib: 4096 } });
});
after(() => space.stop());

const rss = async () => Number(/^process_resident_memory_bytes (\S+)/m.exec((await space.call('GET', '/metrics')).text)[1]);
const path = (name) => `/v1/sandboxes/${sandbox.id}/files?path=${name}`;
// The same bytes each time, without holding them.
function* blocks(total) {
  const block = crypto.createHash('sha256').update('seed').digest();
  const piece = Buffer.concat(Array(MIB / 32).fill(block));
  for (let n = 0; n < total; n += MIB) { piece.writeUInt32BE(n / MIB); yield Buffer.from(piece); }
}

test('a large file goes up and comes back, and the daemon stays small', { timeout: 600000 }, async () => {
  const want = crypto.createHash('sha256');
  for (const b of blocks(size)) want.update(b);
  const digest = want.digest('hex');
  const start = await rss();
  let most = 0;
  const watch = setInterval(async () => { most = Math.max(most, await rss().catch(() => 0)); }, 500);
  try {
    const put = await space.call('PUT', path('/home/user/large'), { body: Readable.from(blocks(size)), timeoutMs: 600000 });
    assert.equal(put.status, 200, put.text);
    assert.equal(put.json.size_bytes, size);
    const h = crypto.createHash('sha256');
    let n = 0;
    const answer = await new Promise((done, fail) => {
      http.get(new URL(path('/home/user/large'), space.url), { headers: { authorization: `Bearer ${space.key}` } }, done).on('error', fail);
    });
    assert.equal(Number(answer.headers['content-length']), size);
    for await (const piece of answer) { h.update(piece); n += piece.length; }
    assert.equal(n, size);
    assert.equal(h.digest('hex'), digest);
  } finally { clearInterval(watch); }
  assert.ok(most - start < 24 * MIB, `grew from ${start} to ${most}`);
});

test('an upload that breaks off leaves nothing', async () => {
  await space.call('PUT', path('/tmp/kept'), { body: 'old' });
  const request = http.request(new URL(path('/tmp/kept'), space.url), { method: 'PUT', headers: { authorization: `Bearer ${space.key}`, 'content-length': 10 * MIB } });
  request.on('error', () => {});
  request.write(Buffer.alloc(MIB));
  await until('it to arrive', async () => (await space.run(sandbox.id, 'ls -A /tmp | wc -l')).stdout.trim() !== '1', 5000).catch(() => {});
  request.destroy();
  await until('the rest to go', async () => (await space.run(sandbox.id, 'ls -A /tmp | grep -v "^kept$" | grep -c space')).stdout.trim() === '0');
  assert.equal((await space.call('GET', path('/tmp/kept'))).text, 'old');
});

test('a download whose reader goes away frees its stream', async () => {
  await space.run(sandbox.id, 'head -c 50M /dev/zero > /tmp/zeroes');
  for (let i = 0; i < 300; i++) {
    await new Promise((done, fail) => {
      const r = http.get(new URL(path('/tmp/zeroes'), space.url), { headers: { authorization: `Bearer ${space.key}` } }, (answer) => {
        answer.once('data', () => { r.destroy(); done(); });
      });
      r.on('error', (e) => { if (e.code !== 'ECONNRESET') fail(e); });
    });
  }
  assert.equal((await space.call('GET', path('/etc/hostname'))).status, 200);
});

test('a full disk of the guest is said so', async () => {
  await space.run(sandbox.id, 'fallocate -l $(($(df --output=avail -k / | tail -1) - 65536))K /home/user/filler');
  const answer = await space.call('PUT', path('/home/user/too-large'), { body: Readable.from(blocks(256 * MIB)), timeoutMs: 120000 }).catch((e) => e);
  if (answer.status) {
    assert.equal(answer.status, 507);
    assert.equal(answer.json.code, 'no_space');
  }
  assert.equal((await space.call('GET', `/v1/sandboxes/${sandbox.id}/files/stat?path=/home/user/too-large`)).status, 404);
  await space.run(sandbox.id, 'rm -f /home/user/large /home/user/filler');
});

test('a port by host name', async () => {
  const { exec } = await space.exec(sandbox.id, { shell: 'cd /etc && python3 -m http.server 8000' });
  await space.api('POST', `/v1/sandboxes/${sandbox.id}/execs/${exec.id}/attach`);
  const ask = (host, target = '/hostname') => space.call('GET', target, { headers: { host } });
  await until('the server', async () => (await ask(`8000-${sandbox.id}.space.test`)).status === 200, 60000, 200);
  assert.equal((await ask(`8000-${sandbox.id}.space.test:7777`)).text.trim(), sandbox.id);
  assert.equal((await ask(`8000-${sandbox.id}.space.test`, '/v1/node')).status, 404, 'the path belongs to the guest');
  assert.equal((await ask(`8000-${sandbox.id}.other.test`)).status, 404);
  assert.equal((await space.call('GET', '/hostname', { key: null, headers: { host: `8000-${sandbox.id}.space.test` } })).status, 401);
});
