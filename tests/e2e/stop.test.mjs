// The end of the platform with all of its machines: SIGUSR1, and spaced --stop-machines for what a killed daemon has left.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import path from 'node:path';
import { Space, build, isRoot, until } from './lib/space.mjs';

let space;
before(async () => { space = await Space.start({ config: { pool_hot: 1, pool_blank: 1 } }); });
after(() => space.stop());

function assertNothingLeft() {
  assert.deepEqual(space.machines(), []);
  assert.deepEqual(space.folders('machines'), []);
  assert.deepEqual(space.folders('sandboxes'), []);
  if (!isRoot) return;
  const groups = execFileSync('find', ['/sys/fs/cgroup', '-maxdepth', '8', '-type', 'd', '-path', '*/space/*'], { encoding: 'utf8' }).split('\n')
    .map((line) => Number(path.basename(line))).filter((uid) => uid > space.uidBase && uid < space.uidBase + 4096);
  assert.deepEqual(groups, []);
}

test('SIGUSR1 ends the sandboxes of every project, then the daemon', async () => {
  const { id: project } = await space.api('POST', '/v1/projects', { name: 'another' });
  const { secret: key } = await space.api('POST', '/v1/keys', { name: 'k', scopes: ['sandboxes:write', 'execs'], project });
  const mine = await space.create({ timeout: '1h' }), paused = await space.create({ timeout: '1h' });
  const other = (await space.api('POST', '/v1/sandboxes?wait=60s', { timeout: '1h' }, { key })).sandbox;
  await space.api('POST', `/v1/sandboxes/${paused.id}/pause?wait=10s`);
  const { exec } = await space.exec(mine.id, 'sleep 1000');
  await space.api('POST', `/v1/sandboxes/${mine.id}/execs/${exec.id}/attach`);
  // One more is on its way when the signal comes.
  const { sandbox: young } = await space.api('POST', '/v1/sandboxes', { timeout: '1h' });
  assert.ok(space.machines().length >= 3);
  space.child.kill('SIGUSR1');
  assert.deepEqual(await Promise.race([space.exited, new Promise((r) => { setTimeout(r, 30000, 'late'); })]), { code: 0, signal: null });
  assertNothingLeft();
  await space.launch();
  for (const s of [await space.get(mine.id), await space.get(paused.id), await space.get(young.id), await space.api('GET', `/v1/sandboxes/${other.id}`, undefined, { key })]) {
    assert.equal(s.state, 'failed');
    assert.equal(s.reason, 'the platform was stopped');
  }
  assert.equal((await space.api('GET', `/v1/sandboxes/${mine.id}/execs/${exec.id}`)).state, 'lost');
  assert.equal((await space.api('GET', '/v1/operations?state=pending,running')).items.length, 0);
});

test('--stop-machines ends what a killed daemon has left', async () => {
  const { id } = await space.create({ timeout: '1h' });
  await space.kill9();
  await until('the machine to run on', () => space.machines().length > 0, 2000);
  execFileSync(path.join(build, 'src/bin/spaced'), [...space.argv(), '--stop-machines'], { stdio: 'pipe', timeout: 60000,
    env: { PATH: process.env.PATH, HOME: process.env.HOME } });
  assertNothingLeft();
  await space.launch();
  const now = await space.get(id);
  assert.equal(now.state, 'failed');
  assert.equal(now.reason, 'the platform was stopped');
  assert.equal((await space.run((await space.create({})).id, 'echo again')).stdout, 'again\n');
});
