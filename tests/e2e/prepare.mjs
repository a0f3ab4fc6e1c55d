// Make a state folder with the template `base`, once, for all e2e tests: node tests/e2e/prepare.mjs DIR
// Takes the template from TEST_TEMPLATE (a folder as the template build makes it); without it, builds one, with the root
// file system from SPACE_CACHE when it is there (see tools/template/build-base.sh).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Space, isRoot, root } from './lib/space.mjs';

const target = path.resolve(process.argv[2] ?? 'build/e2e-state');
if (fs.existsSync(path.join(target, 'space.db'))) {
  console.log(`${target} is there already`);
  process.exit(0);
}
const space = await Space.start({ bare: true, config: { pool_hot: 0, pool_blank: 0 } });
try {
  let folder = 'base';
  if (process.env.TEST_TEMPLATE) {
    execFileSync('cp', ['-r', '--sparse=always', '--reflink=auto', process.env.TEST_TEMPLATE, path.join(space.state, 'incoming', folder)]);
  } else {
    const output = execFileSync(path.join(root, 'tools/template/build-base.sh'),
      ['--state', space.state, ...(process.env.SPACE_CACHE ? ['--cache', process.env.SPACE_CACHE] : [])],
      { encoding: 'utf8', maxBuffer: 1 << 26 });
    folder = /^@result (\S+)$/m.exec(output)[1];
  }
  if (isRoot) execFileSync('chown', ['-R', `${space.uidBase}:${space.uidBase}`, path.join(space.state, 'incoming')]);
  let { operation } = await space.api('POST', '/v1/templates', { incoming: folder, tag: 'base' });
  while (operation.state === 'pending' || operation.state === 'running')
    operation = await space.api('GET', `/v1/operations/${operation.id}?wait=30s`);
  if (operation.state !== 'succeeded') throw new Error(JSON.stringify(operation));
  // The default shape's checkpoint is made by the first sandbox.
  const sandbox = await space.create({});
  await space.remove(sandbox.id);
  await space.stopDaemon();
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.mkdirSync(target);
  execFileSync('sqlite3', [path.join(space.state, 'space.db'), 'PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM api_keys;']);
  execFileSync('cp', ['-a', '--sparse=always', path.join(space.state, 'templates'), path.join(space.state, 'space.db'), target]);
  console.log(`${target}: template ${operation.target.id}`);
} finally {
  await space.stop();
}
