SELECT o_ol_cnt, COUNT(*) AS order_count FROM orders
WHERE o_entry_d >= '2015-07-01 00:00:00.000000' AND o_entry_d < '2015-10-01 00:00:00.000000'
  AND len(list_filter(o_orderline, lambda l: l.ol_delivery_d >=
      strftime(strptime(o_entry_d, '%Y-%m-%d %H:%M:%S') + INTERVAL 7 DAY, '%Y-%m-%d %H:%M:%S'))) > 0
GROUP BY o_ol_cnt ORDER BY o_ol_cnt
