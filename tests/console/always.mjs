// A user creates a grant for the recipients of an approval request, in a real Chromium, and finds it under Always allowed. The input
// is JSON; a failed assertion ends the script with an error.
import assert from 'node:assert/strict';
import { logsIn, opens } from './person.mjs';

const told = JSON.parse(process.argv[2]);
const { browser, page, problems } = await opens(told);

await page.goto(`${told.url}/console/approvals`);
assert.equal(new URL(page.url()).pathname, '/console/login');
await logsIn(page, told);

// It takes two steps, and the second one explains the effect.
await page.getByRole('link', { name: 'Gmail send' }).click();
const mail = page.getByRole('article', { name: 'Gmail send' });
const always = mail.getByRole('button', { name: 'Approve and always allow' });
assert.equal(await always.isVisible(), false, 'one click creates no grant');
await mail.getByText('Always for these recipients…').click();
const words = await mail.innerText();
assert.ok(words.includes('gmail_send for ann needs no approval') && words.includes('ann@example.org'), words);
await always.click();
await page.getByRole('status').filter({ hasText: 'and always allowed for these recipients.' }).waitFor();
await page.getByText('No action waits for approval.').waitFor();

await page.getByRole('link', { name: 'Always allowed' }).click();
const leave = page.getByRole('article', { name: 'Gmail send' });
const shown = await leave.innerText();
assert.ok(shown.includes('ann@example.org') && shown.includes('0 times'), shown);
const revokes = leave.getByRole('button', { name: 'Revoke', exact: true });
assert.equal(await revokes.isVisible(), false, 'one click revokes nothing');
await leave.getByText('Revoke…').click();
assert.equal(await revokes.isVisible(), true);
assert.deepEqual(problems, []);
await browser.close();
