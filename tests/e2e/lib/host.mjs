// What daemons and machines could leave behind on the host.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

/** Control groups, mounts and memory files that carry the platform's name or a state folder. */
export function traces(space) {
  const found = [];
  const walk = (folder, depth) => {
    let names = [];
    try { names = fs.readdirSync(folder, { withFileTypes: true }).filter((e) => e.isDirectory()).map((e) => e.name); } catch { return; }
    for (const name of names) {
      const at = path.join(folder, name);
      // A machine's group carries the number of its uid.
      if (/^\d+$/.test(name) && Number(name) >= space.uidBase && Number(name) < space.uidBase + 4096) found.push(`cgroup ${at}`);
      if (depth > 0) walk(at, depth - 1);
    }
  };
  walk('/sys/fs/cgroup', 4);
  for (const line of fs.readFileSync('/proc/mounts', 'utf8').split('\n'))
    if (line.includes(space.state) && !line.includes(' tmpfs ')) found.push(`mount ${line}`);
  for (const pid of space.machines()) found.push(`machine ${pid}`);
  return found;
}

/** Rows of the daemon's store, read beside it. */
export function query(space, sql) {
  const text = execFileSync('sqlite3', ['-json', '-readonly', path.join(space.state, 'space.db'), sql], { encoding: 'utf8' });
  return text.trim() ? JSON.parse(text) : [];
}

/** The states that a sandbox went through, in order, from the events that the store keeps. */
export function history(space, id) {
  return query(space, `SELECT data FROM events WHERE sandbox_id = '${id}' AND kind = 'sandbox.state' ORDER BY id`)
    .map((row) => JSON.parse(row.data));
}

const legal = { creating: ['running', 'failed', 'deleting'], running: ['pausing', 'deleting', 'failed'], pausing: ['paused', 'running', 'deleting', 'failed'],
  paused: ['resuming', 'deleting', 'failed'], resuming: ['running', 'paused', 'deleting', 'failed'], deleting: ['deleted'], failed: ['deleting'], deleted: [] };

/** Throws when the steps do not follow from each other. */
export function assertLegal(steps, id) {
  let at = 'creating';
  for (const { from, to } of steps) {
    if (from === null || from === undefined || from === '') continue; // made
    if (from !== at || !legal[from].includes(to)) throw new Error(`${id}: ${from} → ${to} after ${at}`);
    at = to;
  }
  return at;
}
