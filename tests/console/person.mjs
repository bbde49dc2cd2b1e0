// A user of the console, in a real Chromium: `told` has the address, the user, and whether the browser runs scripts.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// A page of a new browser, and the unexpected events on it.
export const opens = async told => {
  const require = createRequire(`${told.modules}/`);
  const { chromium } = require('playwright-core');
  const browser = await chromium.launch({ executablePath: told.chromium, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext({ javaScriptEnabled: told.script, viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  const problems = [];
  page.on('dialog', dialog => { problems.push(`a script ran: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', error => problems.push(`an error of the page: ${error}`));
  const sends = request => !request.url().startsWith(told.url) && !/csp|blocked/i.test(request.failure()?.errorText ?? '');
  const elsewhere = request => { if (sends(request)) problems.push(`a request to another host: ${request.url()}`); };
  page.on('requestfinished', elsewhere);
  page.on('requestfailed', elsewhere);
  return { browser, context, page, problems };
};

// Starts at the login page.
export const logsIn = async (page, told) => {
  await page.getByLabel(told.user ? 'API key' : 'Token (JWT)').fill(told.credential);
  if (told.user) await page.getByLabel('Your name').fill(told.user);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Approvals' }).waitFor();
};

// Pictures of a page at three widths, light and dark. It must fit, and axe must find nothing.
export const shoots = (page, told) => {
  const require = createRequire(`${told.modules}/`);
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  return async name => {
    for (const [width, scheme] of [[1280, 'light'], [768, 'dark'], [390, 'light']]) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme: scheme });
      await page.screenshot({ path: `${told.shots}/${told.name}-${name}-${width}-${scheme}.png`, fullPage: true });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${name} is ${wide} wide in ${width}`);
      if (!told.script) continue;
      await page.evaluate(axe);
      const found = await page.evaluate(async () => (await axe.run(document)).violations.map(
        one => `${one.id}: ${one.help}: ${one.nodes.map(node => node.html.slice(0, 200)).join(' | ')}`));
      assert.deepEqual(found, [], `${name} ${width} ${scheme}`);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.emulateMedia({ colorScheme: 'light' });
  };
};
