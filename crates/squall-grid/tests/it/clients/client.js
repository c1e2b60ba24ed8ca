// A stock Playwright client for the tests. NODE_PATH finds playwright-core, or the package that PLAYWRIGHT names.
//   job URL      opens a page and prints its title
//   hold URL     opens a page, prints "connected", and at each line of input prints what evaluating it gives
//   read URL     prints "connected", and at each line of input, which is a URL, prints the first line of its text
//   many URL N    runs N sessions, four at a time, and prints how many failed
//   large URL    prints the length of a text of 8 MB that the page returns
//   targets URL  prints the titles of all pages that the browser shows over CDP
//   quit URL     ends the browser over CDP, and prints "closed"
//   save URL FILE  asks Playwright's server to save a download as FILE, and prints "saved" or the error
//   files URL    uploads a file, downloads one and makes a PDF, and prints the two texts and the first bytes
'use strict';
const { chromium } = require(process.env.PLAYWRIGHT || 'playwright-core');
const fs = require('fs');
const os = require('os');
const path = require('path');
const readline = require('readline');

const page_with = title => `data:text/html,<title>${title}</title><p>text</p>`;

// Runs `count` sessions and returns the error messages.
async function runMany(url, count) {
  const errors = [];
  let started = 0;
  await Promise.all([1, 2, 3, 4].map(async () => {
    while (started++ < count) {
      try {
        const browser = await chromium.connect(url);
        const page = await browser.newPage();
        await page.goto(page_with('squall'));
        await browser.close();
      } catch (error) {
        errors.push(error.message.split('\n')[0]);
      }
    }
  }));
  return errors;
}

async function moveFiles(page) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'squall-client-'));
  const file = path.join(folder, 'file.txt');
  try {
    fs.writeFileSync(file, 'uploaded');
    await page.setContent('<input type="file"><a download="a.txt" href="data:text/plain,downloaded">Get</a>');
    await page.setInputFiles('input', file);
    const uploaded = await page.evaluate(() => document.querySelector('input').files[0].text());
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
    await download.saveAs(file);
    const pdf = await page.pdf();
    return `${uploaded} ${fs.readFileSync(file)} ${pdf.subarray(0, 4)}`;
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

async function main([mode, url, title = 'squall']) {
  if (mode === 'many') {
    const errors = await runMany(url, Number(title));
    return console.log([`${errors.length} failed`, ...errors].join(' | '));
  }
  const browser = await chromium.connect(url);
  const page = await (await browser.newContext()).newPage();
  await page.goto(page_with(title));
  if (mode === 'job') {
    console.log(await page.title());
  } else if (mode === 'large') {
    console.log((await page.evaluate(() => 'squall, '.repeat(1e6))).length);
  } else if (mode === 'targets') {
    const cdp = await browser.newBrowserCDPSession();
    const { targetInfos } = await cdp.send('Target.getTargets');
    console.log(targetInfos.filter(target => target.type === 'page').map(target => target.title).sort().join(' '));
  } else if (mode === 'quit') {
    const cdp = await browser.newBrowserCDPSession();
    await cdp.send('Browser.close').catch(() => {});
    console.log('closed');
  } else if (mode === 'save') {
    await page.setContent('<a download="a.txt" href="data:text/plain,downloaded">Get</a>');
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
    // The client itself never sends this for a browser of another machine.
    const saved = download._artifact._channel.saveAs({ path: title }).then(() => 'saved');
    console.log(await saved.catch(error => error.message.split('\n')[0]));
  } else if (mode === 'files') {
    console.log(await moveFiles(page));
  } else {
    // A page of its own for each, because a page that failed to open shows an error for a moment.
    const text = async url => {
      const fresh = await page.context().newPage();
      await fresh.goto(url);
      return (await fresh.textContent('body')).split('\n')[0];
    };
    const answer = mode === 'read' ? text : line => page.evaluate(line);
    console.log('connected');
    for await (const line of readline.createInterface({ input: process.stdin })) {
      try { console.log(await answer(line)); } catch (error) { console.log(error.message.split('\n')[0]); }
    }
  }
  await browser.close();
}

main(process.argv.slice(2)).catch(error => {
  console.log(error.message.split('\n').filter(line => line.trim()).join(' | '));
  process.exit(1);
});
