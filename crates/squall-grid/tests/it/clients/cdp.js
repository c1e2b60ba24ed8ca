// Stock CDP clients for the tests. NODE_PATH finds puppeteer-core and playwright-core.
//   LIBRARY job URL      opens a page and prints its title
//   LIBRARY leave URL    opens a page with a title and disconnects without closing it
//   LIBRARY titles URL   prints the titles of the pages that are open, and closes the browser
//   LIBRARY large URL    prints the length of a text of 8 MB that the page returns
//   LIBRARY read URL FILE  prints the first line of what a file:// URL shows, or the error
//   LIBRARY hold URL     prints "connected", and at each line of input prints what evaluating it gives
'use strict';
const readline = require('readline');

const pageWith = title => `data:text/html,<title>${title}</title><p>text</p>`;

async function connect(library, url) {
  if (library === 'puppeteer') {
    const puppeteer = require('puppeteer-core');
    const browser = await puppeteer.connect(url.startsWith('ws') ? { browserWSEndpoint: url } : { browserURL: url });
    return { newPage: () => browser.newPage(), pages: () => browser.pages(), close: () => browser.close(), leave: () => browser.disconnect() };
  }
  const { chromium } = require('playwright-core');
  const browser = await chromium.connectOverCDP(url);
  const context = browser.contexts()[0];
  // Closing a browser that connectOverCDP returned only disconnects.
  const close = async () => { await (await browser.newBrowserCDPSession()).send('Browser.close').catch(() => {}); };
  return { newPage: () => context.newPage(), pages: async () => context.pages(), close, leave: () => browser.close() };
}

async function main([library, mode, url, title = 'squall']) {
  const browser = await connect(library, url);
  if (mode === 'titles') {
    const pages = await browser.pages();
    const titles = await Promise.all(pages.map(page => page.title()));
    console.log(titles.filter(title => title).sort().join(' '));
    return browser.close();
  }
  const page = await browser.newPage();
  if (mode === 'read') {
    const text = async () => (await page.goto(title), await page.evaluate('document.body.textContent')).split('\n')[0];
    console.log(await text().catch(error => error.message.split('\n')[0]));
    return browser.close();
  }
  await page.goto(pageWith(title));
  if (mode === 'hold') {
    console.log('connected');
    for await (const line of readline.createInterface({ input: process.stdin })) {
      try { console.log(await page.evaluate(line)); } catch (error) { console.log(error.message.split('\n')[0]); }
    }
  } else if (mode === 'large') {
    console.log((await page.evaluate("'x'.repeat(8e6)")).length);
  } else {
    console.log(await page.title());
  }
  await (mode === 'leave' ? browser.leave() : browser.close());
}

main(process.argv.slice(2)).then(() => process.exit(0), error => {
  console.log(error.message.split('\n').filter(line => line.trim()).join(' | '));
  process.exit(1);
});
