// Runs in every document before the page's own scripts. It observes the web vitals, and finds elements for
// the steps of a browser user. `src/page.rs` calls it through the symbol `squall`.
(() => {
  if (window !== window.top) return;
  const vitals = { lcp: null, cls: 0, inp: null };
  const observers = [];
  let shiftWindow = { start: -Infinity, last: -Infinity, sum: 0 };

  function observe(type, options, handle) {
    try {
      const observer = new PerformanceObserver((list) => list.getEntries().forEach(handle));
      observer.observe({ type, buffered: true, ...options });
      observers.push([observer, handle]);
    } catch { /* this browser does not report the type */ }
  }

  observe('largest-contentful-paint', {}, (entry) => { vitals.lcp = entry.startTime; });
  // CLS is the largest sum of shifts in a window of at most 5 s without a gap of 1 s.
  observe('layout-shift', {}, (entry) => {
    if (entry.hadRecentInput) return;
    const at = entry.startTime;
    if (at - shiftWindow.last > 1000 || at - shiftWindow.start > 5000) shiftWindow = { start: at, sum: 0 };
    shiftWindow.last = at;
    shiftWindow.sum += entry.value;
    vitals.cls = Math.max(vitals.cls, shiftWindow.sum);
  });
  const interaction = (entry) => { vitals.inp = Math.max(vitals.inp ?? 0, entry.duration); };
  observe('event', { durationThreshold: 16 }, (entry) => { if (entry.interactionId) interaction(entry); });
  observe('first-input', {}, interaction);

  function readVitals() {
    for (const [observer, handle] of observers) observer.takeRecords().forEach(handle);
    const navigation = performance.getEntriesByType('navigation')[0] ?? {};
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    return {
      // Tells the documents of a page apart.
      document: ['about:', 'chrome-error:'].includes(location.protocol) ? null : performance.timeOrigin,
      ttfb: navigation.responseStart || null,
      fcp: paint ? paint.startTime : null,
      dom_ready: navigation.domContentLoadedEventEnd || null,
      load: navigation.loadEventEnd || null,
      ...vitals,
    };
  }

  // Sends the last values when the page is left.
  const report = window.__squall;
  delete window.__squall;
  // A page of Playwright may get the function after its first document has begun.
  const reportLast = () => (report ?? window.__squall)?.(JSON.stringify(readVitals()));
  window.addEventListener('pagehide', reportLast, { capture: true });

  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const settle = async () => { await nextFrame(); await nextFrame(); };

  // For Playwright's pages, whose events Squall does not see: waits for the first paint of a loaded page, and
  // at most 2 s.
  async function settleAndRead() {
    const painted = new Promise((resolve) => {
      const isPainted = performance.getEntriesByName('first-contentful-paint').length > 0;
      if (isPainted || document.readyState !== 'complete') return resolve();
      new PerformanceObserver(resolve).observe({ type: 'paint' });
    });
    const late = new Promise((resolve) => setTimeout(resolve, 2000));
    await Promise.race([painted.then(settle), late]);
    return readVitals();
  }

  function find(selector) {
    if (!selector.startsWith('text=')) return document.querySelector(selector);
    const text = selector.slice(5).trim();
    const shows = (element) => (element.innerText ?? element.value ?? '').includes(text)
      || (element instanceof HTMLInputElement && element.value.includes(text));
    const matches = [...document.querySelectorAll('body *')].filter(shows);
    return matches.find((element) => isVisible(element) && ![...element.children].some(shows)) ?? null;
  }

  function isVisible(element) {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(element).visibility === 'visible';
  }

  const describe = (element) => element.tagName.toLowerCase()
    + (element.id ? `#${element.id}` : [...element.classList].slice(0, 2).map((name) => `.${name}`).join(''));

  // Each action returns { done } or { problem }: what stands in its way at the moment.
  function visibleElement(selector) {
    const element = find(selector);
    if (!element) return { problem: 'no element matches' };
    return isVisible(element) ? { element } : { problem: `${describe(element)} is not visible` };
  }

  function enabledElement(selector) {
    const { element, problem } = visibleElement(selector);
    if (!element) return { problem };
    return element.matches(':disabled') ? { problem: `${describe(element)} is disabled` } : { element };
  }

  async function click({ selector }) {
    const { element, problem } = enabledElement(selector);
    if (!element) return { problem };
    element.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    const before = element.getBoundingClientRect();
    await nextFrame();
    const box = element.getBoundingClientRect();
    if (box.x !== before.x || box.y !== before.y) return { problem: `${describe(element)} moves` };
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    const hit = document.elementFromPoint(x, y);
    const label = element.closest('label');
    if (!hit || !(element.contains(hit) || hit.contains(element) && hit.shadowRoot || label?.contains(hit))) {
      return { problem: `${describe(element)} is covered by ${hit ? describe(hit) : 'nothing that can be clicked'}` };
    }
    return { done: { x, y } };
  }

  const TYPED = ['text', 'search', 'email', 'password', 'tel', 'url', 'number', ''];

  function fill({ selector, value }) {
    const { element, problem } = enabledElement(selector);
    if (!element) return { problem };
    const isInput = element instanceof HTMLInputElement, isArea = element instanceof HTMLTextAreaElement;
    if (!isInput && !isArea && !element.isContentEditable) {
      return { impossible: `${describe(element)} is no input, textarea or editable element` };
    }
    if (element.readOnly) return { problem: `${describe(element)} is read-only` };
    element.focus();
    if (isInput && !TYPED.includes(element.type)) {
      setValue(element, value);
      return element.value === value ? { done: { insert: false } }
        : { impossible: `an input of type ${element.type} does not take \`${value}\`` };
    }
    if (isInput || isArea) element.select(); else getSelection().selectAllChildren(element);
    if (value !== '') return { done: { insert: true } };
    if (isInput || isArea) setValue(element, ''); else document.execCommand('delete');
    return { done: { insert: false } };
  }

  function setValue(element, value) {
    const prototype = Object.getPrototypeOf(element);
    Object.getOwnPropertyDescriptor(prototype, 'value').set.call(element, value);
    element.dispatchEvent(new Event('input', { bubbles: true }));
    element.dispatchEvent(new Event('change', { bubbles: true }));
  }

  function select({ selector, value }) {
    const { element, problem } = enabledElement(selector);
    if (!element) return { problem };
    if (!(element instanceof HTMLSelectElement)) return { impossible: `${describe(element)} is no <select>` };
    const option = [...element.options].find((option) => option.value === value || option.label.trim() === value);
    if (!option) return { problem: `${describe(element)} has no option \`${value}\`` };
    element.focus();
    setValue(element, option.value);
    return { done: {} };
  }

  function focus({ selector }) {
    const { element, problem } = enabledElement(selector);
    if (!element) return { problem };
    element.focus();
    return { done: {} };
  }

  function waitFor({ selector }) {
    const { element, problem } = visibleElement(selector);
    return element ? { done: {} } : { problem };
  }

  function expect({ url, text, selector, visible, hidden }) {
    if (url !== null && !location.href.includes(url)) return { problem: `the URL to contain \`${url}\`; it is ${location.href}` };
    if (visible !== null && !waitFor({ selector: visible }).done) return { problem: `\`${visible}\` to be visible` };
    if (hidden !== null && waitFor({ selector: hidden }).done) return { problem: `\`${hidden}\` to be hidden` };
    if (text !== null) {
      const element = selector === null ? document.body : find(selector);
      const where = selector === null ? 'the page' : `\`${selector}\``;
      if (!element) return { problem: `the text \`${text}\` in ${where}, which does not exist` };
      // Other elements have a `value` too, which nobody sees: that of a button, the number of a list item.
      const isControl = ['INPUT', 'TEXTAREA', 'SELECT'].includes(element.tagName);
      const shown = (isControl ? element.value : element.innerText) ?? '';
      if (!shown.includes(text)) {
        const excerpt = shown.replace(/\s+/g, ' ').slice(0, 120);
        return { problem: `the text \`${text}\` in ${where}, which shows \`${excerpt}\`` };
      }
    }
    return { done: {} };
  }

  const actions = { click, fill, select, focus, waitFor, expect };

  // Tries the action until it is possible, for `budget` milliseconds.
  async function act(name, args, budget) {
    const deadline = performance.now() + budget;
    for (;;) {
      let outcome;
      try {
        outcome = await actions[name](args);
      } catch (error) {
        // A selector that is no CSS.
        return { impossible: String(error.message) };
      }
      if (!outcome.problem || performance.now() >= deadline) return outcome;
      await new Promise((resolve) => setTimeout(resolve, 16));
    }
  }

  Object.defineProperty(globalThis, Symbol.for('squall'), { value: { act, settle, readVitals, settleAndRead } });
})();
