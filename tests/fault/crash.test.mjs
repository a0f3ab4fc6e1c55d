// kill -9 of the daemon at random moments of a storm: nothing that was acknowledged is lost, nothing is left over,
// sandboxes and their commands go on, and their output is complete.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { after, before, test } from 'node:test';
import { Space, sleep, until } from '../e2e/lib/space.mjs';
import { assertLegal, history, query, traces } from '../e2e/lib/host.mjs';

const kills = Number(process.env.SPACE_TEST_KILLS ?? 300);
const workers = Number(process.env.SPACE_TEST_WORKERS ?? 4);
let seed = Number(process.env.SPACE_SEED ?? Date.now() % 1000000);
const roll = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return Math.floor(seed / 65536) % n; };

let space;
before(async () => { space = await Space.start({ config: { attach_token_ttl: '1h', max_sandboxes: 200 } }); });
after(() => space.stop());

// Sixty lines over a second or more, and a checksum to be known by.
const script = 'for i in $(seq 1 60); do echo line $i; sleep 0.02; done; exit 5';
const whole = crypto.createHash('sha256').update(Array.from({ length: 60 }, (_, i) => `line ${i + 1}\n`).join('')).digest('hex');

/** What the storm was told, by sandbox id. */
const known = new Map();
let storming = true;

/** One call; null when the daemon died under it: then nothing is known. */
const told = {};
async function call(method, target, options) {
  try {
    const answer = await space.call(method, target, { timeoutMs: 20000, ...options });
    const what = `${method} ${target.replace(/\/[sx][a-z2-7]{20}/g, '/…').replace(/\?.*/, '')} ${answer.status}`;
    told[what] = (told[what] ?? 0) + 1;
    return answer;
  } catch { await sleep(30); return null; }
}

async function worker() {
  while (storming) {
    const answer = await call('POST', '/v1/sandboxes', { body: { timeout: '2h', metadata: { storm: 'yes' } } });
    if (!answer || answer.status === 503) continue;
    assert.equal(answer.status, 202, answer.text);
    const { id } = answer.json.sandbox;
    const fact = { execs: new Map(), deleted: false, paused: null };
    known.set(id, fact);
    // Wait until it runs; it may take a few lives of the daemon.
    let state;
    while (storming && state !== 'running') {
      const seen = await call('GET', `/v1/sandboxes/${id}`);
      if (seen?.status === 200) {
        state = seen.json.state;
        assert.ok(state === 'creating' || state === 'running', `${id} is ${state}: ${seen.json.reason}`);
      }
      await sleep(20);
    }
    for (let i = 0; storming && i < 6 + roll(6); i++) {
      const what = roll(6);
      if (what < 3) {
        const made = await call('POST', `/v1/sandboxes/${id}/execs`, { body: { shell: script } });
        if (made?.status === 201) {
          fact.execs.set(made.json.exec.id, { attached: false });
          const attached = await call('POST', `/v1/sandboxes/${id}/execs/${made.json.exec.id}/attach`);
          if (attached?.status === 200) fact.execs.get(made.json.exec.id).attached = true;
        }
      } else if (what === 3) {
        fact.paused = null;
        const paused = await call('POST', `/v1/sandboxes/${id}/pause?wait=10s`);
        if (paused?.status === 200) fact.paused = true;
        const resumed = roll(2) ? null : await call('POST', `/v1/sandboxes/${id}/resume?wait=10s`);
        if (resumed) fact.paused = resumed.status === 200 ? false : null;
        if (fact.paused !== false) { fact.paused = null; await call('POST', `/v1/sandboxes/${id}/resume?wait=10s`); }
      } else await call('POST', `/v1/sandboxes/${id}/run`, { body: { shell: 'echo x' } });
    }
    // Two of three go, the rest stays to the end.
    if (roll(3) && known.size > 4) {
      const gone = await call('DELETE', `/v1/sandboxes/${id}`);
      if (gone && gone.status < 300) fact.deleted = true;
      else fact.unsure = true;
    }
  }
}

test(`${kills} kills`, { timeout: 1800000 }, async (t) => {
  t.diagnostic(`seed ${seed}`);
  const lasting = await space.create({ timeout: '2h' });
  const { exec: counter } = await space.exec(lasting.id, 'i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.05; done');
  await space.api('POST', `/v1/sandboxes/${lasting.id}/execs/${counter.id}/attach`);
  const storm = Array.from({ length: workers }, worker);
  const crashes = Promise.all(storm);
  for (let i = 0; i < kills; i++) {
    // Half of them soon after the start, half with time for whole lives of sandboxes.
    await Promise.race([sleep(roll(2) ? roll(200) : roll(1500)), crashes]);
    await space.kill9();
    // Every so often it dies while it is still putting things in order.
    await space.launch({ wait: roll(4) !== 0 });
  }
  storming = false;
  await crashes;
  await until('readiness', async () => (await space.call('GET', '/readyz')).status === 200, 60000);

  // Everything settles.
  await until('open operations to end', () => query(space, 'SELECT id FROM operations WHERE state < 2').length === 0, 120000, 200);
  for (const [id, fact] of known) {
    const now = await space.get(id);
    if (fact.deleted) assert.equal(now.state, 'deleted', id);
    else if (!fact.unsure) {
      assert.ok(['running', 'paused'].includes(now.state), `${id} is ${now.state}: ${now.reason}`);
      if (now.state === 'paused') await space.api('POST', `/v1/sandboxes/${id}/resume?wait=30s`);
    }
    assertLegal(history(space, id), id);
  }

  // Commands went on, and nothing of their output is missing.
  let complete = 0;
  for (const [id, fact] of known) {
    if (fact.deleted || fact.unsure) continue;
    for (const [execId, exec] of fact.execs) {
      if (!exec.attached) continue;
      const got = await space.output(id, execId);
      assert.equal(got.exit?.exit_code, 5, `${id} ${execId}`);
      assert.equal(crypto.createHash('sha256').update(got.stdout).digest('hex'), whole, `${id} ${execId}: ${got.stdout.length} bytes`);
      complete++;
    }
  }
  await space.run(lasting.id, 'touch /tmp/stop');
  const counted = (await space.output(lasting.id, counter.id)).stdout.toString().trimEnd().split('\n');
  assert.deepEqual(counted, Array.from({ length: counted.length }, (_, i) => String(i + 1)));
  t.diagnostic(JSON.stringify(told));
  t.diagnostic(`${known.size} sandboxes, ${complete} commands complete, one counted to ${counted.length} through all of it`);
  assert.ok(counted.length > kills / 4);

  // Nothing is left over.
  for (const s of (await space.api('GET', '/v1/sandboxes?limit=1000')).items) await space.remove(s.id);
  assert.deepEqual(space.folders('sandboxes'), []);
  const rows = query(space, 'SELECT id, kind, sandbox_id FROM machines WHERE kind = 2');
  assert.deepEqual(rows, []);
  await until('processes to match the store', () => space.machines().length === query(space, 'SELECT id FROM machines WHERE pid > 0').length, 30000, 200);
  await space.stopDaemon();
  await until('no traces', () => traces(space).length === 0, 10000).catch(() => assert.deepEqual(traces(space), []));
  assert.deepEqual(space.folders('machines'), []);
});
