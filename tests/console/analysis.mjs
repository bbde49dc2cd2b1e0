// An analyst reads the pages of the logs in a real Chromium, by keyboard and by clicks. Texts of users, models and tools stay text.
// The input is JSON; a failed assertion ends the script with an error.
import assert from 'node:assert/strict';
import { logsIn, opens, shoots } from './person.mjs';

const told = JSON.parse(process.argv[2]);
const { browser, page, problems } = await opens(told);
page.on('console', message => { if (/Content Security Policy/i.test(message.text())) problems.push(message.text()); });
const shot = shoots(page, told);
const heading = name => page.getByRole('heading', { name, level: 1, exact: true });

await page.goto(`${told.url}/console/approvals`);
await logsIn(page, told);

// By keyboard alone to the pages of the logs: each link can be reached, and its focus is seen.
const reaches = async name => {
  for (let n = 0; n < 60; n += 1) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => [document.activeElement.textContent, getComputedStyle(document.activeElement).outlineStyle]);
    if (at[0] === name) { assert.equal(at[1], 'solid', `the focus of ${name} is not seen`); return page.keyboard.press('Enter'); }
  }
  assert.fail(`${name} cannot be reached by keyboard`);
};
await reaches('Analysis');
await heading('Overview').waitFor();
const tiles = await page.locator('.tiles').innerText();
assert.match(tiles, /Decisions\s+3\s+Errors\s+0\.0 %/, tiles);
assert.ok(await page.locator('svg.chart rect title').count() > 0, 'each part has a title');
await page.getByRole('heading', { name: 'What changed' }).waitFor();
await shot('overview');

// The table beside a chart leads to its decisions; a value narrows them, and its ! leaves them out.
await page.locator('figure.chart').first().getByText('Table').click();
await page.locator('figure.chart').first().getByRole('link', { name: '3', exact: true }).click();
await heading('Decisions').waitFor();
await page.getByText('3 ended').waitFor();
assert.equal(await page.getByLabel('Filter').inputValue(), 'outcome_category = "SUCCESS:*"');
await page.getByRole('navigation', { name: 'Analysis' }).getByRole('link', { name: 'Decisions' }).click();
await page.goto(`${told.url}/console/decisions`);
await page.getByText('3 ended').waitFor();
await shot('decisions');
const first = page.getByRole('region', { name: 'Decisions' });
await first.getByRole('link', { name: 'Exclude SUCCESS:TASK_COMPLETED' }).click();
await page.getByText('2 ended').waitFor();
assert.equal(await page.getByLabel('Filter').inputValue(), 'outcome_category != "SUCCESS:TASK_COMPLETED"');
await page.getByLabel('Filter').fill('nonsense = 1');
await page.keyboard.press('Enter');
await page.getByRole('alert').filter({ hasText: 'at character 1' }).waitFor();
await page.getByLabel('Filter').fill('call.tool = "add_task"');
await page.keyboard.press('Enter');
await page.getByText('1 ended').waitFor();

// One decision: what was said, where its time went, and each call.
await first.locator('td').getByRole('link').first().click();
await heading('SUCCESS:TASK_COMPLETED').waitFor();
const main = page.locator('main');
await main.locator('summary').filter({ hasText: 'add_task' }).click();
const text = await main.innerText();
for (const seen of ['<script>alert("asked")</script>', '<img src=x onerror=alert(2)>', '<script>alert("answered")</script>', 'U+202E',
  'Where the time went', 'gavel itself', 'Model calls']) {
  assert.ok(text.includes(seen), `${JSON.stringify(seen)} is not in ${text}`);
}
assert.equal(await main.locator('script, img').count(), 0);
await shot('decision');

for (const [name, seen] of [['Tools', 'add_task'], ['Models', 'Requested model'], ['Cost', 'Input tokens']]) {
  await page.getByRole('navigation', { name: 'Analysis' }).getByRole('link', { name }).click();
  await heading(name).waitFor();
  await page.getByText(seen).first().waitFor();
  await page.getByText('As JSON').click();
  await shot(name.toLowerCase());
}

// Another time: without a decision the page says what it is for.
await page.getByText('Other time').click();
await page.getByLabel('From').fill('2020-01-01T00:00');
await page.getByLabel('To').fill('2020-01-02T00:00');
await page.getByLabel('Time zone').fill('Asia/Kolkata');
await page.getByRole('button', { name: 'Show' }).click();
await page.getByText('No decision of this time has ended.').waitFor();
await page.getByText('Wed 1 Jan 2020, 00:00 IST').waitFor();
await shot('empty');
assert.deepEqual(problems, []);
await browser.close();
