// Two platforms on one host: each has user ids of its own, or the second does not start. It would end the first one's machines.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { Space, build, isRoot } from './lib/space.mjs';

test('a platform whose user ids overlap another one\'s is refused, and the other one runs on', { skip: !isRoot && 'needs root: user ids of their own' }, async () => {
  const space = await Space.start({ config: { pool_hot: 0, pool_blank: 0 } });
  try {
    const { id } = await space.create({});
    const folder = path.join(path.dirname(space.state), 'second');
    const argv = [...space.argv(), '--set', `uid_base=${space.uidBase + 100}`, '--state-dir', folder];
    assert.throws(() => execFileSync(path.join(build, 'src/bin/spaced'), argv, { stdio: 'pipe', timeout: 60000, env: { PATH: process.env.PATH } }),
      (e) => e.status !== 0 && /user ids \d+ to \d+ are in use by another platform/.test(String(e.stderr)));
    assert.throws(() => execFileSync(path.join(build, 'src/bin/spaced'), [...space.argv(), '--set', `uid_base=${space.uidBase + 8192}`],
      { stdio: 'pipe', timeout: 60000, env: { PATH: process.env.PATH } }),
    (e) => e.status !== 0 && new RegExp(`belongs to uid ${space.uidBase}, but uid_base is ${space.uidBase + 8192}`).test(String(e.stderr)));
    assert.equal((await space.run(id, 'echo still here')).stdout, 'still here\n');
  } finally { await space.stop(); }
});
