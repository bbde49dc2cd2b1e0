// A user confirms a plan in a real Chromium, answers what the work asks, and sees it done. The page stays as it is: a frame in it
// shows the progress. The input is JSON; a failed assertion ends the script with an error.
import assert from 'node:assert/strict';
import { logsIn, opens, shoots } from './person.mjs';

const told = JSON.parse(process.argv[2]);
const { browser, page, problems } = await opens(told);
const shot = shoots(page, told);

await page.goto(`${told.url}/console/approvals`);
await logsIn(page, told);
await page.getByRole('link', { name: 'Planning' }).click();
await page.getByRole('heading', { name: 'Planning sessions' }).waitFor();
await shot('sessions');
await page.getByRole('link', { name: /^Accept ISO weeks/ }).click();
await page.getByRole('heading', { name: 'Planning session', exact: true }).waitFor();
assert.ok(page.url().endsWith(`/console/sessions/${told.session}`), page.url());
const main = page.locator('main');
const text = await main.innerText();
for (const seen of ['Accept ISO weeks', '<script>alert("planted")</script>', 'U+202E', 'Confirm version 1', 'Document']) {
  assert.ok(text.includes(seen), `${JSON.stringify(seen)} is not in ${text}`);
}
assert.equal(await main.locator('script, img, a[href*="example.org"]').count(), 0);
const progress = page.frameLocator('iframe.progress');
await progress.getByText('Awaiting confirmation').waitFor();
await shot('session');

await page.getByRole('button', { name: 'Confirm and begin' }).click();
// The frame refreshes itself, and leads to a page with what is new.
const shows = async wanted => {
  for (let n = 0; n < 20 && await wanted.count() === 0; n += 1) {
    await progress.getByRole('link', { name: 'Show what is new' }).click();
    await page.waitForLoadState();
  }
  await wanted.first().waitFor();
};
const approve = page.getByRole('button', { name: 'Approve once' });
await shows(approve);
await shot('waits');
await approve.click();
await page.getByRole('status').filter({ hasText: 'Open an issue' }).waitFor();
await shows(page.getByText('4 of 4 done'));
assert.equal(await page.locator('iframe').count(), 0, 'a session that has ended changes no more');

// The steps are folded away until the user looks at them.
const first = page.getByRole('article', { name: /^t1 / });
assert.equal(await first.getByText('The task is done.').isVisible(), false);
await first.getByText('1 step', { exact: true }).click();
assert.ok(await first.getByText('The task is done.').isVisible());
await shot('done');
await page.getByRole('link', { name: 'All versions, any two side by side' }).click();
await page.getByText('Made obsolete', { exact: true }).waitFor();
await shot('versions');
assert.deepEqual(problems, []);
await browser.close();
