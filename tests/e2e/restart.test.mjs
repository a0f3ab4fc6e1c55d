// The daemon ends and starts again while sandboxes live: by SIGTERM as an operator does it, by SIGKILL as a crash does it.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Space, until } from './lib/space.mjs';
import { leftovers } from './lib/machine_host.mjs';

let space;
before(async () => { space = await Space.start({ config: { pool_hot: 1, pool_blank: 1 } }); });
after(async () => assert.deepEqual(await leftovers(space), []));

const ends = { SIGTERM: () => space.stopDaemon(), SIGKILL: () => space.kill9() };

for (const [signal, end] of Object.entries(ends)) {
  describe(signal, () => {
    test('a sandbox, a running exec and its output go on', async () => {
      const { id } = await space.create({ metadata: { kept: signal } });
      const x = (exec, tail) => `/v1/sandboxes/${id}/execs/${exec.id}${tail}`;
      await space.run(id, 'echo in memory > /dev/shm/file; sleep 1000 > /dev/null 2>&1 &');
      const { exec } = await space.exec(id, 'i=0; while [ ! -e /tmp/enough ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo last $i; exit 9');
      const short = (await space.exec(id, ': < /tmp/gate; echo done; exit 4')).exec;
      const stdin = (await space.exec(id, { command: ['cat'], stdin: true })).exec;
      await space.run(id, 'mkfifo /tmp/gate');
      for (const e of [short, stdin]) await space.api('POST', x(e, '/attach'));
      await space.api('POST', x(stdin, '/stdin'), 'before\n');
      const reserved = (await space.exec(id, 'echo late')).exec;
      const text = [];
      let last = null, exit = null;
      const read = async (enough) => {
        const stop = new AbortController();
        try {
          for await (const e of space.events(x(exec, '/output'), { signal: stop.signal, headers: last === null ? {} : { 'last-event-id': last } })) {
            if (e.event === 'exit') exit = JSON.parse(e.data);
            else { assert.equal(e.event, 'stdout'); text.push(Buffer.from(e.data, 'base64').toString()); }
            last = e.id;
            if (text.join('').split('\n').length > enough) stop.abort();
          }
        } catch (error) { if (!stop.signal.aborted) throw error; }
      };
      await read(20);
      // One reader is there when the daemon ends: it is cut off, or told to go; never left hanging.
      const cut = read(Infinity).catch((error) => error);
      await until('the reader to read', () => text.join('').split('\n').length > 30);
      const machines = space.machines();
      await end();
      await cut;
      assert.equal(exit, null);
      await until('nothing but the machines of sandboxes to be left, or pools too', () => space.machines().length <= machines.length);
      await space.launch();

      const sandbox = await space.get(id);
      assert.equal(sandbox.state, 'running');
      assert.deepEqual(sandbox.metadata, { kept: signal });
      assert.equal((await space.run(id, 'cat /dev/shm/file; pgrep -c sleep')).stdout.split('\n')[0], 'in memory');
      assert.equal((await space.api('GET', x(exec, ''))).state, 'running');
      await space.api('POST', x(stdin, '/stdin?eof=true'), 'after\n');
      assert.equal((await space.output(id, stdin.id)).stdout.toString(), 'before\nafter\n');
      await space.run(id, 'timeout 10 sh -c "exec 3<> /tmp/gate; sleep 1"; touch /tmp/enough');
      assert.equal((await space.api('GET', x(short, '/result?wait=30s'))).exit_code, 4);
      assert.equal((await space.output(id, short.id)).stdout.toString(), 'done\n');
      assert.equal((await space.output(id, reserved.id)).stdout.toString(), 'late\n', 'what was reserved before can be started after');
      await read(Infinity);
      assert.equal(exit.exit_code, 9);
      const lines = text.join('').trimEnd().split('\n'), count = lines.length - 1;
      assert.deepEqual(lines, [...Array.from({ length: count }, (_, i) => `line ${i + 1}`), `last ${count}`]);
      await space.remove(id);
    });

    test('what ends while no daemon is there is known after', async () => {
      const { id } = await space.create({});
      const { exec } = await space.exec(id, 'echo one; : < /tmp/gate; echo two; exit 6');
      await space.run(id, 'mkfifo /tmp/gate');
      await space.api('POST', `/v1/sandboxes/${id}/execs/${exec.id}/attach`);
      const opener = (await space.exec(id, 'sleep 2; exec 3<> /tmp/gate; sleep 2')).exec;
      await space.api('POST', `/v1/sandboxes/${id}/execs/${opener.id}/attach`);
      const short = await space.create({ timeout_ms: 5000 });
      const paused = await space.create({});
      await space.api('POST', `/v1/sandboxes/${paused.id}/pause?wait=30s`);
      await end();
      await until('its deadline to pass', () => Date.now() > Date.parse(short.expires_at) + 500, 20000);
      await space.launch();
      assert.equal((await space.api('GET', `/v1/sandboxes/${id}/execs/${exec.id}/result?wait=30s`)).exit_code, 6);
      assert.equal((await space.output(id, exec.id)).stdout.toString(), 'one\ntwo\n');
      const late = await until('the sandbox to be ended', async () => {
        const now = await space.get(short.id);
        return now.state === 'deleted' && now;
      });
      assert.equal(late.reason, 'deadline');
      assert.equal((await space.get(paused.id)).state, 'paused');
      await space.api('POST', `/v1/sandboxes/${paused.id}/resume?wait=30s`);
      assert.equal((await space.run(paused.id, 'echo awake')).stdout, 'awake\n');
      for (const each of [id, paused.id]) await space.remove(each);
    });
  });
}
