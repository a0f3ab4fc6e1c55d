// What goes wrong outside of the daemon: each gives a clear state and reason within seconds, and frees everything.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Space, isRoot, sleep, until } from '../e2e/lib/space.mjs';

let space;
before(async () => { space = await Space.start({ config: { pool_hot: 0, pool_blank: 0 } }); });
after(() => space.stop());

/** The sandbox is failed with a reason within 8 s, its exec lost, its machine gone, and it can be deleted. `words`: what
 *  the kept console holds; null: none can be had. The log has machine, sandbox and reason. */
async function assertFailed(id, execId, reason, words) {
  const failed = await until('the failure to be seen', async () => {
    const now = await space.get(id);
    return now.state === 'failed' && now;
  }, 8000);
  assert.match(failed.reason, reason);
  assert.ok(failed.ended_at);
  if (execId) assert.equal((await space.api('GET', `/v1/sandboxes/${id}/execs/${execId}`)).state, 'lost');
  const refused = await space.call('POST', `/v1/sandboxes/${id}/run`, { body: { shell: 'true' } });
  assert.equal(refused.status, 410);
  if (words !== undefined) {
    const kept = await space.call('GET', `/v1/sandboxes/${id}/console`);
    assert.equal(kept.status, words ? 200 : 410, kept.text);
    if (words) assert.match(kept.text, words);
  }
  const log = space.log().split('\n').filter((line) => line.includes(id));
  assert.ok(log.some((line) => /machine lost.* machine="m.* reason=/.test(line)), log.join('\n'));
  assert.ok(log.some((line) => /sandbox failed.* reason=/.test(line)), log.join('\n'));
  await until('everything to be freed', () => space.machines().length === 0 && !space.folders('sandboxes').includes(id)
    && space.folders('machines').length === 0, 8000);
  assert.equal((await space.remove(id)).state, 'deleted');
}

async function withExec(body = {}) {
  const made = await space.create({ timeout: '1h', ...body });
  const { exec } = await space.exec(made.id, 'sleep 1000');
  await space.api('POST', `/v1/sandboxes/${made.id}/execs/${exec.id}/attach`);
  return [made.id, exec.id];
}

test('QEMU killed from outside', async () => {
  const [id, exec] = await withExec();
  const waiting = space.api('GET', `/v1/sandboxes/${id}/execs/${exec}/result?wait=20s`);
  const [pid] = space.machines();
  process.kill(pid, 'SIGKILL');
  assert.equal((await waiting).state, 'lost');
  await assertFailed(id, exec, /./, null);
});

test('QEMU killed while paused', async () => {
  const [id, exec] = await withExec();
  await space.api('POST', `/v1/sandboxes/${id}/pause?wait=10s`);
  process.kill(space.machines()[0], 'SIGKILL');
  await assertFailed(id, exec, /./);
});

test('QEMU killed while the daemon is dead', async () => {
  const [id, exec] = await withExec();
  await space.kill9();
  process.kill(space.machines()[0], 'SIGKILL');
  await space.launch();
  await assertFailed(id, exec, /./);
});

test('the guest kernel panics', async () => {
  const [id, exec] = await withExec();
  await space.call('POST', `/v1/sandboxes/${id}/run`, { body: { shell: 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger', timeout_ms: 5000 } });
  await assertFailed(id, exec, /./, /Kernel panic/);
});

test('the guest agent is killed', async () => {
  const [id, exec] = await withExec();
  // PID 1 takes no signal from inside; breakpoints all over its program end it.
  const program = 'import re\nfor line in open("/proc/1/maps"):\n  m=re.match(r"(\\w+)-(\\w+) r-xp \\w+ \\w+:\\w+ (\\d+) ", line)\n'
    + '  if m and m[3]!="0":\n    a,b=int(m[1],16),int(m[2],16)\n    f=open("/proc/1/mem","r+b",buffering=0); f.seek(a); f.write(b"\\xcc"*(b-a))';
  await space.call('POST', `/v1/sandboxes/${id}/run`, { body: { command: ['python3', '-c', program], timeout_ms: 10000 } });
  await assertFailed(id, exec, /./, /Kernel panic/);
});

test('the guest powers itself off', async () => {
  const [id, exec] = await withExec();
  await space.call('POST', `/v1/sandboxes/${id}/run`, { body: { shell: 'echo 1 > /proc/sys/kernel/sysrq; echo o > /proc/sysrq-trigger; sleep 5', timeout_ms: 8000 } });
  await assertFailed(id, exec, /./, /^/);
});

test('the guest kernel panics while the daemon is dead', async () => {
  const [id, exec] = await withExec();
  const { exec: late } = await space.exec(id, 'echo 1 > /proc/sys/kernel/sysrq; sleep 1; echo c > /proc/sysrq-trigger');
  await space.api('POST', `/v1/sandboxes/${id}/execs/${late.id}/attach`);
  await space.kill9();
  await sleep(3000);
  await space.launch();
  await assertFailed(id, exec, /panic/, /Kernel panic/);
});

test('the guest stops answering', async () => {
  await space.stopDaemon();
  space.options.config = { ...space.options.config, heartbeat_interval: '1s', agent_timeout: '5s' };
  await space.launch();
  const [id, exec] = await withExec();
  // A loop of the highest priority, without the share that the kernel keeps for the rest: the agent gets no time.
  const { exec: loop } = await space.exec(id, 'echo the last thing > /dev/console; echo -1 > /proc/sys/kernel/sched_rt_runtime_us; '
    + 'python3 -c "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))\nwhile True: pass"');
  await space.api('POST', `/v1/sandboxes/${id}/execs/${loop.id}/attach`);
  await until('the loss to be seen', async () => (await space.get(id)).state === 'failed', 40000, 200);
  await assertFailed(id, exec, /answer/, /the last thing/);
});

test('the disk of the host is full', { skip: isRoot ? false : 'needs root for a small file system' }, async () => {
  const folder = fs.mkdtempSync('/tmp/space-small-');
  fs.chmodSync(folder, 0o755);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=700m,mode=755', 'tmpfs', folder]);
  const before_ = process.env.SPACE_TEST_TMP;
  process.env.SPACE_TEST_TMP = folder;
  let small;
  try {
    small = await Space.start({ config: { pool_hot: 0, pool_blank: 0 } });
    const made = await small.create({ timeout: '1h' });
    const filler = path.join(folder, 'filler');
    const fd = fs.openSync(filler, 'w');
    try { for (;;) fs.writeSync(fd, Buffer.alloc(1 << 16)); } catch (e) { assert.equal(e.code, 'ENOSPC'); }
    fs.closeSync(fd);
    // What is there can be read; what needs room is refused with a word, in seconds, and leaves nothing.
    assert.equal((await small.call('GET', `/v1/sandboxes/${made.id}`)).status, 200);
    for (let i = 0; i < 5; i++) {
      const begin = Date.now();
      const answer = await small.call('POST', '/v1/sandboxes?wait=20s', { body: {} });
      assert.ok(answer.status >= 500 || answer.status === 202, `${answer.status} ${answer.text}`);
      assert.ok(Date.now() - begin < 15000);
      if (answer.status >= 500) assert.ok(answer.json.detail);
    }
    fs.rmSync(filler);
    const again = await until('a create to work again', async () => {
      const answer = await small.call('POST', '/v1/sandboxes?wait=20s', { body: {} });
      return answer.status === 201 && answer.json.sandbox;
    }, 30000, 200);
    assert.equal((await small.run(again.id, 'echo fine')).stdout, 'fine\n');
    await small.remove(again.id);
    await until('open operations to end', async () => (await small.api('GET', '/v1/operations?state=pending,running')).items.length === 0, 20000);
  } finally {
    if (before_ === undefined) delete process.env.SPACE_TEST_TMP;
    else process.env.SPACE_TEST_TMP = before_;
    await small?.stop();
    execFileSync('umount', ['-l', folder]);
    fs.rmSync(folder, { recursive: true, force: true });
  }
});

test('out of file descriptors', async () => {
  const { id } = await space.create({ timeout: '1h' });
  const used = fs.readdirSync(`/proc/${space.child.pid}/fd`).length;
  await space.stopDaemon();
  await space.launch({ wrap: ['sh', '-c', `ulimit -n ${used + 6}; exec "$0" "$@"`] });
  const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => (i % 2 ? space.call('POST', '/v1/sandboxes?wait=20s', { body: {}, timeoutMs: 30000 })
    : space.call('GET', `/v1/sandboxes/${id}`, { timeoutMs: 30000 })).catch((e) => e)));
  for (const a of answers) if (a.status) assert.ok([200, 201, 202, 500, 503, 504].includes(a.status), `${a.status} ${a.text}`);
  assert.equal(space.child.exitCode, null, 'the daemon lives');
  await space.stopDaemon();
  await space.launch();
  const again = await space.create({});
  assert.equal((await space.run(id, 'echo still')).stdout, 'still\n');
  for (const s of (await space.api('GET', '/v1/sandboxes')).items) await space.remove(s.id);
  assert.equal((await space.get(again.id)).state, 'deleted');
  await until('everything to be freed', () => space.machines().length === 0 && space.folders('machines').length === 0, 8000);
});

test('the daemon ends on SIGTERM, its machines run on, and the next one finds them', async () => {
  const [id, exec] = await withExec();
  const [machine] = space.machines();
  await space.stopDaemon();
  await sleep(200);
  assert.deepEqual(space.machines(), [machine]);
  await space.launch();
  assert.equal((await space.get(id)).state, 'running');
  assert.equal((await space.run(id, 'echo on')).stdout, 'on\n');
  assert.equal((await space.api('GET', `/v1/sandboxes/${id}/execs/${exec}`)).state, 'running');
  await space.remove(id);
});
