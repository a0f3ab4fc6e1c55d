// What the tests of machines look at on the host and bring into a guest.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { root, sleep, until } from './space.mjs';

/** For measures over a given time, and for nothing else. */
export const sleepUntil = (time) => sleep(Math.max(0, time - Date.now()));

/** CPU time of all threads of a process in ms. */
export function cpuMs(pid) {
  return fs.readdirSync(`/proc/${pid}/task`)
    .reduce((sum, thread) => sum + Number(fs.readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1e6, 0);
}

export function residentKib(pid) {
  return Number(/^VmRSS:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
}

/** Run a script of tests/e2e/guest in a sandbox; it must succeed. */
export async function guestScript(space, id, name, ...args) {
  const target = `/tmp/${name}`;
  const put = await space.call('PUT', `/v1/sandboxes/${id}/files?path=${target}`, { body: fs.readFileSync(path.join(root, 'tests/e2e/guest', name)) });
  assert.equal(put.status, 200, put.text);
  const result = await space.run(id, { command: ['python3', target, ...args] });
  assert.equal(result.exit_code, 0, result.stderr);
  return result;
}

function walk(folder, found, depth = 0) {
  let names = [];
  try { names = fs.readdirSync(folder, { withFileTypes: true }); } catch { return; }
  for (const name of names) {
    if (!name.isDirectory()) continue;
    const full = path.join(folder, name.name);
    found(full, name.name);
    if (depth < 8) walk(full, found, depth + 1);
  }
}

/** Mounts, cgroups, processes of this daemon and its machines that exist now. */
export function traces(space) {
  const found = [];
  const ours = (uid) => uid === space.options.user || (uid >= space.uidBase && uid < space.uidBase + 4096);
  for (const line of fs.readFileSync('/proc/self/mounts', 'utf8').split('\n'))
    if (line.includes(path.dirname(space.state))) found.push(`mount ${line}`);
  walk('/sys/fs/cgroup', (full, name) => { if (/^\d+$/.test(name) && ours(Number(name)) && /\/space\//.test(full)) found.push(`cgroup ${full}`); });
  for (const name of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = fs.readFileSync(`/proc/${name}/status`, 'utf8');
      if (ours(Number(/^Uid:\s+(\d+)/m.exec(status)[1])) && !/^State:\s+[ZX]/m.test(status))
        found.push(`process ${name} ${fs.readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').slice(0, 100)}`);
    } catch { /* gone meanwhile */ }
  }
  return found;
}

/** End the daemon and its sandboxes as a user does; what is left of them after a while, which should be []. */
export async function leftovers(space) {
  const list = await space.api('GET', '/v1/sandboxes?limit=1000');
  await Promise.all(list.items.map((s) => space.remove(s.id)));
  await space.stopDaemon();
  let left;
  try {
    await until('nothing to be left', () => {
      left = traces(space);
      for (const folder of ['machines', 'sandboxes', 'incoming'])
        for (const name of space.folders(folder)) if (name !== '.lock') left.push(`${folder}/${name}`);
      return left.length === 0;
    }, 10000, 100);
  } catch { /* the list says it */ }
  await space.stop();
  return left;
}
