// A user of the console, in a real Chromium: `told` has the address, the user, and whether the browser runs scripts.
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
  return { browser, context, page, problems };
};

// Starts at the login page.
export const logsIn = async (page, told) => {
  await page.getByLabel(told.user ? 'API key' : 'Token (JWT)').fill(told.credential);
  if (told.user) await page.getByLabel('Your name').fill(told.user);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Approvals' }).waitFor();
};
