SELECT o_ol_cnt, COUNT(*) AS order_count FROM orders
WHERE o_entry_d >= '2015-07-01 00:00:00.000000' AND o_entry_d < '2015-10-01 00:00:00.000000'
  AND EXISTS (SELECT 1 FROM jsonb_array_elements(o_orderline) AS l(line) WHERE line->>'ol_delivery_d' >=
      to_char(o_entry_d::timestamp + INTERVAL '7 days', 'YYYY-MM-DD HH24:MI:SS'))
GROUP BY o_ol_cnt ORDER BY o_ol_cnt
