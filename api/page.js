(() => {
  const root = document.documentElement;
  const search = document.getElementById('search');
  const none = document.getElementById('none');
  const stored = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();
  document.getElementById('theme').addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try { localStorage.setItem('theme', root.dataset.theme); } catch { /* a browser that keeps nothing */ }
  });
  const ops = [...document.querySelectorAll('.op')];
  const schemas = [...document.querySelectorAll('.schema')];
  search.addEventListener('input', () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shows = (text) => words.every((w) => text.includes(w));
    let found = 0;
    for (const op of ops) {
      op.hidden = !shows(op.dataset.search) && !shows(op.textContent.toLowerCase());
      if (!op.hidden) found++;
      const entry = document.querySelector(`nav li[data-for="${op.id}"]`);
      if (entry) entry.hidden = op.hidden;
    }
    for (const s of schemas) { s.hidden = !shows(s.textContent.toLowerCase()); if (!s.hidden) found++; }
    none.hidden = found > 0;
  });
  document.addEventListener('keydown', (e) => {
    if (e.key === '/' && document.activeElement !== search) { e.preventDefault(); search.focus(); }
    if (e.key === 'Escape' && document.activeElement === search) { search.value = ''; search.dispatchEvent(new Event('input')); search.blur(); }
  });
})();
