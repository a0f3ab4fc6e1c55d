// The cases of tests/cli against a spaced of its own with real machines.
//
// check.py gives TEST_BUILD, TEST_QEMU, TEST_QEMU_DATA, TEST_TEMPLATE (a folder as the template build makes it), TEST_TMP.
import test from 'node:test';
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { spawn, spawnSync } from 'node:child_process';

const { TEST_BUILD: build, TEST_QEMU: qemu, TEST_QEMU_DATA: data, TEST_TEMPLATE: template, TEST_TMP: scratch } = process.env;
const state = path.join(scratch, 'state');
const program = path.join(build, 'src/cli/space');
const log = fs.openSync(path.join(scratch, 'spaced.log'), 'w');
// A range of uids of its own, so that two daemons on one host do not meet.
const uidBase = 0x70000000 + (process.pid % 30000) * 4096;

const daemon = spawn(path.join(build, 'src/bin/spaced'), ['--state-dir', state, '--listen', '127.0.0.1:0', '--qemu-path', qemu,
  ...(data ? ['--qemu-data', data] : []), '--uid-base', String(uidBase)], { stdio: ['ignore', log, log], env: { PATH: process.env.PATH, HOME: scratch } });
const ended = new Promise((done) => { daemon.on('exit', done); });
const space = (...args) => spawnSync(program, ['--state-dir', state, ...args], { encoding: 'utf8', env: { PATH: process.env.PATH } });

const deadline = Date.now() + 60000;
while (space('node').status !== 0) {
  assert.ok(daemon.exitCode === null && Date.now() < deadline, fs.readFileSync(path.join(scratch, 'spaced.log'), 'utf8'));
  await new Promise((done) => { setTimeout(done, 100); });
}
const incoming = path.join(state, 'incoming', 'base');
spawnSync('cp', ['-r', '--sparse=always', '--reflink=auto', template, incoming]);
if (process.getuid() === 0) spawnSync('chown', ['-R', '--reference', state, incoming]);
const imported = space('template', 'import', 'base', '--tag', 'base');
assert.equal(imported.status, 0, imported.stderr);

process.env.SPACE_TEST_URL = fs.readFileSync(path.join(state, 'url'), 'utf8').trim();
process.env.SPACE_TEST_KEY = fs.readFileSync(path.join(state, 'admin.key'), 'utf8').trim();

test.after(async () => {
  const killed = space('kill', '--all');
  daemon.kill('SIGTERM');
  await ended;
  assert.equal(killed.status, 0, killed.stderr);
});

await import('../cli/cli.test.mjs');
