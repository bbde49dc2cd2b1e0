// The pictures of docs/how-to/approve.md: the list, and the request whose link leads elsewhere. And one of each request.
import assert from 'node:assert/strict';
import { logsIn, opens } from './person.mjs';

const told = JSON.parse(process.argv[2]);
const { browser, page, problems } = await opens(told);
const list = `${told.url}/console/approvals`;
await page.setViewportSize({ width: 1000, height: 640 });
await page.goto(list);
await logsIn(page, told);
await page.goto(list);
await page.screenshot({ path: `${told.docs}/approvals.png` });
await page.screenshot({ path: `${told.shots}/${told.name}s.png`, fullPage: true });
const rows = await page.locator('.rows .what a').evaluateAll(all => all.map(row => row.href));
assert.equal(rows.length, 5);
for (const [at, row] of rows.entries()) {
  await page.goto(row);
  for (const frame of await page.locator('iframe').all()) {
    await frame.contentFrame().locator('body').waitFor();
    // What was never in view is not painted.
    await frame.scrollIntoViewIfNeeded();
  }
  await page.screenshot({ path: `${told.shots}/${told.name}-${at + 1}.png`, fullPage: true });
  if (at === 0) await page.locator('main').screenshot({ path: `${told.docs}/approval.png` });
}
assert.deepEqual(problems, []);
await browser.close();
